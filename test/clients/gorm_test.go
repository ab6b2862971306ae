package clients_test

import (
	"errors"
	"fmt"
	"testing"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

var gormCases = goCases{
	"migrate":     gormMigrate,
	"insert":      gormInsert,
	"query":       gormQuery,
	"transaction": gormTransaction,
	"rollback":    gormRollback,
	"error":       gormError,
	shardedCase:   gormSharded,
}

// gormAuthor has many gormBook.
type gormAuthor struct {
	ID    int64
	Name  string `gorm:"uniqueIndex;size:100"`
	Books []gormBook
}

type gormBook struct {
	ID           int64
	GormAuthorID int64 `gorm:"index"`
	Title        string
}

func gormOpen(t *testing.T, to target) *gorm.DB {
	t.Helper()
	db, err := gorm.Open(postgres.Open(to.dsn()), &gorm.Config{Logger: logger.Discard, TranslateError: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if pool, err := db.DB(); err == nil {
			_ = pool.Close()
		}
	})
	return db.WithContext(t.Context())
}

// gormTables makes the tables for the length of the test.
func gormTables(t *testing.T, to target) *gorm.DB {
	t.Helper()
	db := gormOpen(t, to)
	must(t, db.Migrator().DropTable(&gormBook{}, &gormAuthor{}))
	must(t, db.AutoMigrate(&gormAuthor{}, &gormBook{}))
	t.Cleanup(func() { _ = gormOpen(t, to).Migrator().DropTable(&gormBook{}, &gormAuthor{}) })
	return db
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func gormMigrate(t *testing.T, to target) {
	db := gormTables(t, to)
	must(t, db.AutoMigrate(&gormAuthor{}, &gormBook{})) // what is there already is found
	if !db.Migrator().HasIndex(&gormAuthor{}, "Name") || !db.Migrator().HasColumn(&gormBook{}, "title") {
		t.Error("the migrator does not find what it made")
	}
	types, err := db.Migrator().ColumnTypes(&gormAuthor{})
	if err != nil || len(types) != 2 {
		t.Errorf("%d columns, %v", len(types), err)
	}
}

func gormInsert(t *testing.T, to target) {
	db := gormTables(t, to)
	author := gormAuthor{Name: "Anna", Books: []gormBook{{Title: "One"}, {Title: "Two"}}}
	must(t, db.Create(&author).Error)
	if author.ID == 0 || author.Books[1].ID == 0 {
		t.Errorf("the keys did not come back: %+v", author)
	}
	many := make([]gormAuthor, 250)
	for i := range many {
		many[i].Name = fmt.Sprint("author ", i)
	}
	must(t, db.CreateInBatches(many, 100).Error)
	var count int64
	must(t, db.Model(&gormAuthor{}).Count(&count).Error)
	if count != 251 {
		t.Errorf("%d authors", count)
	}
}

func gormQuery(t *testing.T, to target) {
	db := gormTables(t, to)
	must(t, db.Create(&gormAuthor{Name: "Anna", Books: []gormBook{{Title: "One"}, {Title: "Two"}}}).Error)
	var found gormAuthor
	must(t, db.Preload("Books", func(db *gorm.DB) *gorm.DB { return db.Order("id") }).First(&found, "name = ?", "Anna").Error)
	if len(found.Books) != 2 || found.Books[1].Title != "Two" {
		t.Errorf("found %+v", found)
	}
	var titles []string
	must(t, db.Model(&gormBook{}).Joins("JOIN gorm_authors a ON a.id = gorm_author_id").Where("a.name IN ?", []string{"Anna", "Otto"}).Order("title").Pluck("title", &titles).Error)
	if len(titles) != 2 {
		t.Errorf("titles %q", titles)
	}
	if err := db.First(&gormAuthor{}, "name = ?", "nobody").Error; !errors.Is(err, gorm.ErrRecordNotFound) {
		t.Error(err)
	}
}

func gormTransaction(t *testing.T, to target) {
	db := gormTables(t, to)
	must(t, db.Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&gormAuthor{Name: "kept"}).Error; err != nil {
			return err
		}
		inner := tx.Transaction(func(tx *gorm.DB) error { return tx.Create(&gormAuthor{Name: "kept"}).Error })
		if !errors.Is(inner, gorm.ErrDuplicatedKey) {
			t.Errorf("the inner transaction: %v", inner)
		}
		return tx.Model(&gormAuthor{}).Where("name = ?", "kept").Update("name", "renamed").Error
	}))
	must(t, db.First(&gormAuthor{}, "name = ?", "renamed").Error)
}

func gormRollback(t *testing.T, to target) {
	db := gormTables(t, to)
	stop := errors.New("no")
	err := db.Transaction(func(tx *gorm.DB) error {
		must(t, tx.Create(&gormAuthor{Name: "lost"}).Error)
		return stop
	})
	if !errors.Is(err, stop) {
		t.Error(err)
	}
	if err := db.First(&gormAuthor{}, "name = ?", "lost").Error; !errors.Is(err, gorm.ErrRecordNotFound) {
		t.Errorf("what was rolled back: %v", err)
	}
}

func gormError(t *testing.T, to target) {
	db := gormTables(t, to)
	must(t, db.Create(&gormAuthor{Name: "one"}).Error)
	if err := db.Create(&gormAuthor{Name: "one"}).Error; !errors.Is(err, gorm.ErrDuplicatedKey) {
		t.Error(err)
	}
	if err := db.Create(&gormBook{GormAuthorID: 12345}).Error; !errors.Is(err, gorm.ErrForeignKeyViolated) {
		t.Error(err)
	}
	wantSQLState(t, db.Exec("SELECT * FROM no_such_table").Error, "42P01")
}

// gormOrder is a row of the sharded table.
type gormOrder struct {
	UserID int64 `gorm:"primaryKey;autoIncrement:false"`
	ID     int64 `gorm:"primaryKey;autoIncrement:false"`
	Note   string
}

func gormSharded(t *testing.T, to target) {
	db := gormOpen(t, to).Table(to.ordersTable).Session(&gorm.Session{})
	for user := range int64(20) {
		must(t, db.Create(&gormOrder{UserID: user, ID: 1, Note: "order"}).Error)
		must(t, db.Where("user_id = ?", user).Update("note", "changed").Error)
		var found gormOrder
		must(t, db.First(&found, "user_id = ? AND id = ?", user, 1).Error)
		if found.Note != "changed" {
			t.Errorf("found %+v", found)
		}
		must(t, db.Transaction(func(tx *gorm.DB) error { return tx.Delete(&gormOrder{}, "user_id = ?", user).Error }))
	}
}
