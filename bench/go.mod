module github.com/cleavedb/cleave/bench

go 1.26.0

require github.com/cleavedb/cleave v0.0.0

require (
	github.com/alphadose/haxmap v1.4.0 // indirect
	github.com/authzed/consistent v0.4.0 // indirect
	github.com/bwmarrin/snowflake v0.3.0 // indirect
	github.com/dgryski/go-jump v0.0.0-20170409065014-e1f439676b57 // indirect
	github.com/dgryski/go-metro v0.0.0-20250106013310-edb8663e5e33 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/golang/groupcache v0.0.0-20241129210726-2c02b8208cf8 // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/orcaman/concurrent-map/v2 v2.0.1 // indirect
	github.com/puzpuzpuz/xsync/v4 v4.5.0 // indirect
	github.com/rs/xid v1.6.0 // indirect
	github.com/serialx/hashring v0.0.0-20200727003509-22c0c7ab6b1b // indirect
	github.com/spaolacci/murmur3 v1.1.0 // indirect
	github.com/stathat/consistent v1.0.0 // indirect
	github.com/zeromicro/go-zero v1.10.3 // indirect
	golang.org/x/exp v0.0.0-20221031165847-c99f073a8326 // indirect
	golang.org/x/sys v0.47.0 // indirect
	google.golang.org/grpc v1.83.2 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)

replace github.com/cleavedb/cleave => ../
