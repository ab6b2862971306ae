"""SQLAlchemy, its core and its ORM, over psycopg2."""

from sqlalchemy import BigInteger, Column, ForeignKey, Integer, MetaData, Table, Text, create_engine, delete, func, insert, inspect, select, text, update
from sqlalchemy.exc import IntegrityError, ProgrammingError
from sqlalchemy.orm import Session, declarative_base, relationship, selectinload
from sqlalchemy.pool import QueuePool

from suite import ORDERS, case, equal, run, sharded

engine = create_engine("postgresql+psycopg2://", future=True, poolclass=QueuePool, pool_size=5)
Base = declarative_base()


class Author(Base):
    __tablename__ = "alchemy_authors"
    id = Column(Integer, primary_key=True)
    name = Column(Text, unique=True, nullable=False)
    books = relationship("Book", back_populates="author", order_by="Book.id")


class Book(Base):
    __tablename__ = "alchemy_books"
    id = Column(Integer, primary_key=True)
    author_id = Column(ForeignKey("alchemy_authors.id"), nullable=False, index=True)
    title = Column(Text)
    author = relationship("Author", back_populates="books")


def fresh():
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)


@case
def migrate():
    fresh()
    Base.metadata.create_all(engine)  # what is there already is found
    inspector = inspect(engine)
    equal([column["name"] for column in inspector.get_columns("alchemy_books")], ["id", "author_id", "title"])
    equal(inspector.get_foreign_keys("alchemy_books")[0]["referred_table"], "alchemy_authors")
    equal(len(inspector.get_indexes("alchemy_books")), 1)
    with engine.begin() as c:
        c.execute(text("ALTER TABLE alchemy_books ADD COLUMN pages integer"))
    equal(len(inspect(engine).get_columns("alchemy_books")), 4)


@case
def insert_():
    fresh()
    with Session(engine) as session:
        author = Author(name="Anna", books=[Book(title="One"), Book(title="Two")])
        session.add(author)
        session.add_all(Author(name=f"author {n}") for n in range(250))
        session.commit()
        assert author.id and author.books[1].id
        equal(session.scalar(select(func.count()).select_from(Author)), 251)


insert_.__name__ = "insert"


@case
def query():
    with Session(engine) as session:
        anna = session.scalars(select(Author).options(selectinload(Author.books)).where(Author.name == "Anna")).one()
        equal([book.title for book in anna.books], ["One", "Two"])
        joined = select(Author.name, func.count(Book.id)).join(Book).group_by(Author.name)
        equal(session.execute(joined).all(), [("Anna", 2)])
        some = select(Author.name).where(Author.name.in_(["author 1", "author 2"])).order_by(Author.name.desc()).limit(1)
        equal(session.scalars(some).all(), ["author 2"])
    with engine.connect().execution_options(stream_results=True, max_row_buffer=50) as c:
        equal(sum(1 for _ in c.execute(select(Author.id))), 251)


@case
def transaction():
    with Session(engine) as session, session.begin():
        session.add(Author(name="kept"))
        session.flush()
        try:
            with session.begin_nested():
                session.add(Author(name="kept"))
        except IntegrityError:
            pass
        else:
            raise AssertionError("the same name twice")
    with Session(engine) as session:
        equal(session.scalar(select(func.count()).where(Author.name == "kept")), 1)


@case
def rollback():
    with Session(engine) as session:
        session.add(Author(name="lost"))
        session.flush()
        session.rollback()
        equal(session.scalar(select(func.count()).where(Author.name == "lost")), 0)


@case
def error():
    with engine.connect() as c:
        try:
            c.execute(text("SELECT * FROM no_such_table"))
        except ProgrammingError as why:
            equal(why.orig.pgcode, "42P01")
        else:
            raise AssertionError("a table that is not there")
        c.rollback()
        equal(c.scalar(text("SELECT 1")), 1)
    Base.metadata.drop_all(engine)


@sharded
def sharded():
    orders = Table(ORDERS, MetaData(), Column("user_id", BigInteger, primary_key=True), Column("id", BigInteger, primary_key=True), Column("note", Text))
    with engine.connect() as c:
        for user in range(20):
            for number in range(2):
                c.execute(insert(orders).values(user_id=user, id=number, note="order"))
            c.execute(update(orders).where(orders.c.user_id == user, orders.c.id == 1).values(note="changed"))
            c.commit()
            equal(c.execute(select(orders.c.id, orders.c.note).where(orders.c.user_id == user).order_by(orders.c.id)).all(), [(0, "order"), (1, "changed")])
            equal(c.execute(delete(orders).where(orders.c.user_id == user, orders.c.id == 0)).rowcount, 1)
            c.commit()


try:
    run()
finally:
    engine.dispose()
