package api

import "github.com/cleavedb/cleave/internal/topology"

// DescribeTables returns the tables of the map as the API shows them, in the order of their names.
func DescribeTables(m *topology.Map) []Table {
	all := m.Tables()
	members := map[*topology.Keyspace][]string{}
	for _, t := range all {
		if k := t.Keyspace(); k != nil {
			members[k] = append(members[k], t.Name().String())
		}
	}
	tables := make([]Table, len(all))
	for i, t := range all {
		tables[i].TableSpec = t.Spec()
		for _, other := range members[t.Keyspace()] {
			if other != t.Name().String() {
				tables[i].ColocatedWith = append(tables[i].ColocatedWith, other)
			}
		}
	}
	return tables
}

// DescribeTable returns one table of the map as the API shows it.
func DescribeTable(m *topology.Map, name topology.TableName) Table {
	for _, t := range DescribeTables(m) {
		if t.Name == name.String() {
			return t
		}
	}
	return Table{}
}
