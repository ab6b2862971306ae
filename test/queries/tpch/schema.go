package tpch

import (
	"fmt"
	"strings"
)

// Tables are the benchmark's, in the order in which they can be filled.
var Tables = []string{"region", "nation", "supplier", "part", "partsupp", "customer", "orders", "lineitem"}

// Create makes the tables. There are no foreign keys: between keyspaces there can be none. Their columns have indexes, which the
// specification allows.
const Create = `
CREATE TABLE region (r_regionkey integer PRIMARY KEY, r_name char(25) NOT NULL, r_comment varchar(152));
CREATE TABLE nation (n_nationkey integer PRIMARY KEY, n_name char(25) NOT NULL, n_regionkey integer NOT NULL, n_comment varchar(152));
CREATE TABLE supplier (
	s_suppkey integer PRIMARY KEY, s_name char(25) NOT NULL, s_address varchar(40) NOT NULL, s_nationkey integer NOT NULL, s_phone char(15) NOT NULL,
	s_acctbal numeric(15,2) NOT NULL, s_comment varchar(101) NOT NULL);
CREATE TABLE part (
	p_partkey integer PRIMARY KEY, p_name varchar(55) NOT NULL, p_mfgr char(25) NOT NULL, p_brand char(10) NOT NULL, p_type varchar(25) NOT NULL, p_size integer NOT NULL,
	p_container char(10) NOT NULL, p_retailprice numeric(15,2) NOT NULL, p_comment varchar(23) NOT NULL);
CREATE TABLE partsupp (
	ps_partkey integer NOT NULL, ps_suppkey integer NOT NULL, ps_availqty integer NOT NULL, ps_supplycost numeric(15,2) NOT NULL, ps_comment varchar(199) NOT NULL,
	PRIMARY KEY (ps_partkey, ps_suppkey));
CREATE TABLE customer (
	c_custkey integer PRIMARY KEY, c_name varchar(25) NOT NULL, c_address varchar(40) NOT NULL, c_nationkey integer NOT NULL, c_phone char(15) NOT NULL,
	c_acctbal numeric(15,2) NOT NULL, c_mktsegment char(10) NOT NULL, c_comment varchar(117) NOT NULL);
CREATE TABLE orders (
	o_orderkey bigint PRIMARY KEY, o_custkey integer NOT NULL, o_orderstatus char(1) NOT NULL, o_totalprice numeric(15,2) NOT NULL, o_orderdate date NOT NULL,
	o_orderpriority char(15) NOT NULL, o_clerk char(15) NOT NULL, o_shippriority integer NOT NULL, o_comment varchar(79) NOT NULL);
CREATE TABLE lineitem (
	l_orderkey bigint NOT NULL, l_partkey integer NOT NULL, l_suppkey integer NOT NULL, l_linenumber integer NOT NULL, l_quantity numeric(15,2) NOT NULL,
	l_extendedprice numeric(15,2) NOT NULL, l_discount numeric(15,2) NOT NULL, l_tax numeric(15,2) NOT NULL, l_returnflag char(1) NOT NULL, l_linestatus char(1) NOT NULL,
	l_shipdate date NOT NULL, l_commitdate date NOT NULL, l_receiptdate date NOT NULL, l_shipinstruct char(25) NOT NULL, l_shipmode char(10) NOT NULL,
	l_comment varchar(44) NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber));
CREATE INDEX ON partsupp (ps_suppkey);
CREATE INDEX ON customer (c_nationkey);
CREATE INDEX ON orders (o_custkey);
CREATE INDEX ON lineitem (l_partkey, l_suppkey);
`

// Keyspace is one that has to be made before tables are declared.
type Keyspace struct{ Name, Key string }

// Keyspaces are three: what is joined by its key is in one of them, all else is joined across.
var Keyspaces = []Keyspace{{"by_order", "bigint"}, {"by_customer", "integer"}, {"by_part", "integer"}}

// Declare are the statements that say to the router where the rows of a schema's tables are to be.
func Declare(schema string) []string {
	var statements []string
	for _, sharded := range []struct{ keyspace, tables string }{
		{"by_order", "{schema}.orders(o_orderkey), {schema}.lineitem(l_orderkey)"},
		{"by_customer", "{schema}.customer(c_custkey)"},
		{"by_part", "{schema}.part(p_partkey), {schema}.partsupp(ps_partkey)"},
	} {
		tables := strings.ReplaceAll(sharded.tables, "{schema}", schema)
		statements = append(statements, fmt.Sprintf("SELECT cleave.shard_tables('%s', keyspace => '%s')", tables, sharded.keyspace))
	}
	for _, table := range []string{"supplier", "nation", "region"} {
		statements = append(statements, fmt.Sprintf("SELECT cleave.reference_table('%s.%s')", schema, table))
	}
	return statements
}
