import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.sql.Array;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.time.LocalDate;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;

/** JDBC: the driver's modes, its cursors and batches, and what it asks the catalogue. */
public class Client {
    static final String ORDERS = System.getenv("ORDERS_TABLE");

    interface Case {
        void run() throws Exception;
    }

    /** Somebody who has a connection. */
    interface Use {
        void with(Connection c) throws Exception;
    }

    static String variable(String name, String otherwise) {
        String value = System.getenv(name);
        return value == null ? otherwise : value;
    }

    /** The driver does not read libpq's variables. */
    static Connection open(String database, String... settings) throws SQLException {
        Properties p = new Properties();
        p.setProperty("user", System.getenv("PGUSER"));
        p.setProperty("password", variable("PGPASSWORD", ""));
        p.setProperty("sslmode", variable("PGSSLMODE", "disable"));
        if (System.getenv("PGSSLROOTCERT") != null) {
            p.setProperty("sslrootcert", System.getenv("PGSSLROOTCERT"));
        }
        for (int i = 0; i < settings.length; i += 2) {
            p.setProperty(settings[i], settings[i + 1]);
        }
        return DriverManager.getConnection("jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/" + database, p);
    }

    static void connected(Use use, String... settings) throws Exception {
        try (Connection c = open(System.getenv("PGDATABASE"), settings)) {
            use.with(c);
        }
    }

    static void execute(Connection c, String sql) throws SQLException {
        try (Statement s = c.createStatement()) {
            s.execute(sql);
        }
    }

    static void table(Connection c, String name, String columns) throws SQLException {
        execute(c, "DROP TABLE IF EXISTS " + name);
        execute(c, "CREATE TABLE " + name + " (" + columns + ")");
    }

    /** The first column of all rows. */
    static List<Object> query(Connection c, String sql, Object... values) throws SQLException {
        try (PreparedStatement s = c.prepareStatement(sql)) {
            for (int i = 0; i < values.length; i++) {
                s.setObject(i + 1, values[i]);
            }
            List<Object> found = new ArrayList<>();
            try (ResultSet rows = s.executeQuery()) {
                while (rows.next()) {
                    found.add(rows.getObject(1));
                }
            }
            return found;
        }
    }

    static int update(Connection c, String sql, Object... values) throws SQLException {
        try (PreparedStatement s = c.prepareStatement(sql)) {
            for (int i = 0; i < values.length; i++) {
                s.setObject(i + 1, values[i]);
            }
            return s.executeUpdate();
        }
    }

    static void equal(Object got, Object want) {
        if (!want.equals(got)) {
            throw new AssertionError("got " + got + ", expected " + want);
        }
    }

    static void fails(String state, Case work) throws Exception {
        try {
            work.run();
        } catch (SQLException error) {
            equal(error.getSQLState(), state);
            return;
        }
        throw new AssertionError("nothing failed, expected SQLSTATE " + state);
    }

    static void connect() throws Exception {
        connected(c -> {
            equal(query(c, "SELECT current_setting('application_name')"), List.of("jdbc client"));
            equal(c.isValid(10), true);
        }, "ApplicationName", "jdbc client");
        fails("3D000", () -> open("no_such_database").close());
    }

    static void types() throws Exception {
        connected(c -> {
            table(c, "jdbc_types", "a integer, b bigint, c numeric(20,5), d float8, e text, f bytea, g boolean, h date, i timestamptz, j uuid, k integer[], l text");
            LocalDate day = LocalDate.of(2024, 2, 29);
            OffsetDateTime moment = OffsetDateTime.parse("2024-02-29T12:34:56.789Z");
            UUID uuid = UUID.fromString("01234567-89ab-cdef-0123-456789abcdef");
            byte[] bytes = {0, 1, -1};
            for (int round = 0; round < 10; round++) { // after some the driver prepares, and takes binary values
                execute(c, "TRUNCATE jdbc_types");
                update(c, "INSERT INTO jdbc_types VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", 7, 1L << 60, new BigDecimal("12345.67890"), 0.1,
                    "grüße \\ ' \"", bytes, true, day, moment, uuid, c.createArrayOf("integer", new Object[] {1, 2, 3}), null);
                try (PreparedStatement s = c.prepareStatement("SELECT * FROM jdbc_types"); ResultSet row = s.executeQuery()) {
                    row.next();
                    equal(row.getInt(1), 7);
                    equal(row.getLong(2), 1L << 60);
                    equal(row.getBigDecimal(3), new BigDecimal("12345.67890"));
                    equal(row.getDouble(4), 0.1);
                    equal(row.getString(5), "grüße \\ ' \"");
                    equal(Arrays.toString(row.getBytes(6)), Arrays.toString(bytes));
                    equal(row.getBoolean(7), true);
                    equal(row.getObject(8, LocalDate.class), day);
                    equal(row.getObject(9, OffsetDateTime.class).toInstant(), moment.toInstant());
                    equal(row.getObject(10), uuid);
                    Array array = row.getArray(11);
                    equal(Arrays.toString((Object[]) array.getArray()), "[1, 2, 3]");
                    equal(row.getString(12) == null, true);
                }
            }
            execute(c, "DROP TABLE jdbc_types");
        });
    }

    static void transaction() throws Exception {
        connected(c -> {
            table(c, "jdbc_transaction", "n integer");
            c.setAutoCommit(false);
            update(c, "INSERT INTO jdbc_transaction VALUES (?)", 1);
            c.rollback();
            update(c, "INSERT INTO jdbc_transaction VALUES (?)", 2);
            c.commit();
            equal(query(c, "SELECT n FROM jdbc_transaction"), List.of(2));
            c.commit();
            c.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ);
            c.setReadOnly(true);
            fails("25006", () -> update(c, "INSERT INTO jdbc_transaction VALUES (?)", 3));
            fails("25P02", () -> query(c, "SELECT 1"));
            c.rollback();
            c.setReadOnly(false);
            execute(c, "DROP TABLE jdbc_transaction");
            c.commit();
        });
    }

    static void savepoint() throws Exception {
        connected(c -> {
            table(c, "jdbc_savepoint", "n integer PRIMARY KEY");
            c.setAutoCommit(false);
            update(c, "INSERT INTO jdbc_savepoint VALUES (?)", 1);
            Savepoint s = c.setSavepoint("here");
            fails("23505", () -> update(c, "INSERT INTO jdbc_savepoint VALUES (?)", 1));
            c.rollback(s);
            update(c, "INSERT INTO jdbc_savepoint VALUES (?)", 2);
            c.commit();
            equal(query(c, "SELECT sum(n) FROM jdbc_savepoint"), List.of(3L));
            execute(c, "DROP TABLE jdbc_savepoint");
            c.commit();
        });
    }

    static void error() throws Exception {
        Map<String, String> failures = Map.of("SELECT 1/0", "22012", "SELECT * FROM no_such_table", "42P01", "SELEC 1", "42601", "SELECT no_such_column", "42703");
        for (String mode : List.of("extended", "simple")) {
            connected(c -> {
                for (Map.Entry<String, String> f : failures.entrySet()) {
                    fails(f.getValue(), () -> query(c, f.getKey()));
                    equal(query(c, "SELECT 1"), List.of(1));
                }
            }, "preferQueryMode", mode);
        }
    }

    /** The same work in every mode in which the driver can send a statement. */
    static void prepared() throws Exception {
        for (String mode : List.of("simple", "extended", "extendedForPrepared", "extendedCacheEverything")) {
            for (String threshold : List.of("0", "1", "5")) {
                connected(c -> {
                    try (PreparedStatement s = c.prepareStatement("SELECT ?::integer * 2, ?::text")) {
                        for (int n = 0; n < 12; n++) {
                            s.setInt(1, n);
                            s.setString(2, "word " + n);
                            try (ResultSet rows = s.executeQuery()) {
                                rows.next();
                                equal(rows.getInt(1) + rows.getString(2), 2 * n + "word " + n);
                            }
                        }
                        equal(s.getMetaData().getColumnType(1), java.sql.Types.INTEGER);
                    }
                }, "preferQueryMode", mode, "prepareThreshold", threshold);
            }
        }
    }

    static void cursor() throws Exception {
        connected(c -> {
            c.setAutoCommit(false); // without a transaction the driver takes all at once
            try (PreparedStatement s = c.prepareStatement("SELECT n FROM generate_series(1, 1000) n WHERE n > ?")) {
                s.setFetchSize(100);
                for (int round = 0; round < 7; round++) {
                    s.setInt(1, 0);
                    long sum = 0;
                    try (ResultSet rows = s.executeQuery()) {
                        while (rows.next()) {
                            sum += rows.getInt(1);
                        }
                    }
                    equal(sum, 500500L);
                }
                s.setInt(1, 0);
                try (ResultSet rows = s.executeQuery(); Statement other = c.createStatement(); ResultSet between = other.executeQuery("SELECT 42")) {
                    between.next(); // two open at a time
                    rows.next();
                    equal(between.getInt(1) + rows.getInt(1), 43);
                }
            }
            c.commit();
        });
    }

    static void batch() throws Exception {
        for (String rewrite : List.of("false", "true")) {
            connected(c -> {
                table(c, "jdbc_batch", "n integer PRIMARY KEY, word text");
                try (PreparedStatement s = c.prepareStatement("INSERT INTO jdbc_batch VALUES (?, ?)")) {
                    for (int n = 0; n < 500; n++) {
                        s.setInt(1, n);
                        s.setString(2, "word " + n);
                        s.addBatch();
                    }
                    equal(s.executeBatch().length, 500);
                }
                equal(query(c, "SELECT count(*) FROM jdbc_batch WHERE word = 'word ' || n"), List.of(500L));
                try (PreparedStatement s = c.prepareStatement("INSERT INTO jdbc_batch VALUES (?, 'again') RETURNING n", Statement.RETURN_GENERATED_KEYS)) {
                    s.setInt(1, 1000);
                    s.executeUpdate();
                    try (ResultSet keys = s.getGeneratedKeys()) {
                        keys.next();
                        equal(keys.getInt(1), 1000);
                    }
                }
                execute(c, "DROP TABLE jdbc_batch");
            }, "reWriteBatchedInserts", rewrite);
        }
    }

    static void copy() throws Exception {
        connected(c -> {
            table(c, "jdbc_copy", "n integer, word text");
            CopyManager copies = c.unwrap(PGConnection.class).getCopyAPI();
            StringBuilder lines = new StringBuilder();
            for (int n = 0; n < 10000; n++) {
                lines.append(n).append("\tword ").append(n).append('\n');
            }
            equal(copies.copyIn("COPY jdbc_copy FROM STDIN", new StringReader(lines.toString())), 10000L);
            StringWriter out = new StringWriter();
            equal(copies.copyOut("COPY (SELECT * FROM jdbc_copy ORDER BY n) TO STDOUT", out), 10000L);
            equal(out.toString(), lines.toString());
            fails("22P02", () -> copies.copyIn("COPY jdbc_copy FROM STDIN", new StringReader("no number\tword\n")));
            execute(c, "DROP TABLE jdbc_copy");
        });
    }

    static void cancel() throws Exception {
        connected(c -> {
            try (Statement s = c.createStatement()) {
                Thread canceller = new Thread(() -> {
                    try {
                        Thread.sleep(300);
                        s.cancel();
                    } catch (Exception error) {
                        error.printStackTrace();
                    }
                });
                canceller.start();
                fails("57014", () -> s.execute("SELECT pg_sleep(60)"));
                canceller.join();
                s.setQueryTimeout(1);
                fails("57014", () -> s.execute("SELECT pg_sleep(60)"));
            }
            equal(query(c, "SELECT 1"), List.of(1));
        });
    }

    static void notice() throws Exception {
        connected(c -> {
            try (Statement s = c.createStatement()) {
                s.execute("DROP TABLE IF EXISTS no_such_table");
                equal(s.getWarnings().getMessage(), "table \"no_such_table\" does not exist, skipping");
            }
        });
    }

    static void big() throws Exception {
        connected(c -> {
            long sum = 0;
            for (Object n : query(c, "SELECT n, repeat('x', 200) FROM generate_series(1, 50000) n")) {
                sum += (Integer) n;
            }
            equal(sum, 1250025000L);
            String large = "y".repeat(5 << 20);
            equal(query(c, "SELECT ?::text", large), List.of(large));
        });
    }

    static void many() throws Exception {
        List<Connection> all = new ArrayList<>();
        try {
            for (int i = 0; i < 40; i++) {
                all.add(open(System.getenv("PGDATABASE")));
            }
            for (int i = 0; i < all.size(); i++) {
                equal(query(all.get(i), "SELECT ?::integer", i), List.of(i));
            }
        } finally {
            for (Connection c : all) {
                c.close();
            }
        }
    }

    static List<String> names(ResultSet rows, String column) throws SQLException {
        try (rows) {
            List<String> found = new ArrayList<>();
            while (rows.next()) {
                found.add(rows.getString(column));
            }
            return found;
        }
    }

    static void metadata() throws Exception {
        connected(c -> {
            table(c, "jdbc_metadata", "id integer PRIMARY KEY, parent integer REFERENCES jdbc_metadata, word varchar(10) NOT NULL DEFAULT 'x'");
            DatabaseMetaData m = c.getMetaData();
            equal(m.getDatabaseProductName(), "PostgreSQL");
            equal(names(m.getTables(null, "public", "jdbc_meta%", new String[] {"TABLE"}), "TABLE_NAME"), List.of("jdbc_metadata"));
            equal(names(m.getColumns(null, "public", "jdbc_metadata", "%"), "COLUMN_NAME"), List.of("id", "parent", "word"));
            equal(names(m.getPrimaryKeys(null, "public", "jdbc_metadata"), "COLUMN_NAME"), List.of("id"));
            equal(names(m.getImportedKeys(null, "public", "jdbc_metadata"), "FKCOLUMN_NAME"), List.of("parent"));
            equal(names(m.getIndexInfo(null, "public", "jdbc_metadata", true, false), "COLUMN_NAME"), List.of("id"));
            equal(names(m.getSchemas(), "TABLE_SCHEM").contains("public"), true);
            equal(names(m.getTypeInfo(), "TYPE_NAME").contains("int4"), true);
            equal(names(m.getFunctions(null, "pg_catalog", "abs"), "FUNCTION_NAME").contains("abs"), true);
            execute(c, "DROP TABLE jdbc_metadata");
        });
    }

    static void sharded() throws Exception {
        for (String mode : List.of("extended", "simple")) {
            int first = mode.equals("simple") ? 100 : 0;
            connected(c -> {
                for (int user = first; user < first + 20; user++) {
                    c.setAutoCommit(true);
                    for (int id = 0; id < 3; id++) {
                        update(c, "INSERT INTO " + ORDERS + " (user_id, id, note) VALUES (?, ?, ?)", (long) user, (long) id, "order");
                    }
                    c.setAutoCommit(false);
                    equal(update(c, "UPDATE " + ORDERS + " SET note = ? WHERE user_id = ?", "changed", user), 3);
                    equal(update(c, "DELETE FROM " + ORDERS + " WHERE user_id = ? AND id = ?", user, 2), 1);
                    c.commit();
                    equal(query(c, "SELECT note FROM " + ORDERS + " WHERE user_id = ? ORDER BY id", user), List.of("changed", "changed"));
                    c.commit();
                }
            }, "preferQueryMode", mode);
        }
    }

    public static void main(String[] arguments) {
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("connect", Client::connect);
        cases.put("types", Client::types);
        cases.put("transaction", Client::transaction);
        cases.put("savepoint", Client::savepoint);
        cases.put("error", Client::error);
        cases.put("prepared", Client::prepared);
        cases.put("cursor", Client::cursor);
        cases.put("batch", Client::batch);
        cases.put("copy", Client::copy);
        cases.put("cancel", Client::cancel);
        cases.put("notice", Client::notice);
        cases.put("big", Client::big);
        cases.put("many", Client::many);
        cases.put("metadata", Client::metadata);
        if (ORDERS != null) {
            cases.put("sharded", Client::sharded);
        }
        boolean failed = false;
        for (Map.Entry<String, Case> one : cases.entrySet()) {
            try {
                one.getValue().run();
                System.out.println("ok " + one.getKey());
            } catch (Exception | AssertionError error) {
                failed = true;
                error.printStackTrace();
                System.out.println("not ok " + one.getKey() + ": " + String.valueOf(error.getMessage()).lines().findFirst().orElse(""));
            }
        }
        System.exit(failed ? 1 : 0);
    }
}
