module github.com/cleavedb/cleave/test/clients

go 1.26.0

require (
	github.com/cleavedb/cleave v0.0.0
	github.com/creack/pty v1.1.24
	github.com/jackc/pgx/v5 v5.11.0
	github.com/lib/pq v1.12.3
	go.uber.org/goleak v1.3.0
	gorm.io/driver/postgres v1.6.3
	gorm.io/gorm v1.31.2
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.2 // indirect
	github.com/jinzhu/inflection v1.0.0 // indirect
	github.com/jinzhu/now v1.1.5 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/cleavedb/cleave => ../..
