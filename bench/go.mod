module github.com/cleavedb/cleave/bench

go 1.26.0

require (
	github.com/alphadose/haxmap v1.4.0
	github.com/bwmarrin/snowflake v0.3.0
	github.com/cleavedb/cleave v0.0.0
	github.com/dgryski/go-jump v0.0.0-20170409065014-e1f439676b57
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f
	github.com/golang/groupcache v0.0.0-20241129210726-2c02b8208cf8
	github.com/google/uuid v1.6.0
	github.com/orcaman/concurrent-map/v2 v2.0.1
	github.com/puzpuzpuz/xsync/v4 v4.5.0
	github.com/rs/xid v1.6.0
	github.com/serialx/hashring v0.0.0-20200727003509-22c0c7ab6b1b
	github.com/stathat/consistent v1.0.0
	github.com/zeromicro/go-zero v1.10.3
)

require (
	github.com/spaolacci/murmur3 v1.1.0 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	golang.org/x/exp v0.0.0-20221031165847-c99f073a8326 // indirect
)

replace github.com/cleavedb/cleave => ../
