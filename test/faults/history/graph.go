package history

import "slices"

// graph has, for each node, those that come after it.
type graph [][]int

func (g graph) add(from, to int) {
	if from != to {
		g[from] = append(g[from], to)
	}
}

// cycles returns a short one for each group of nodes that can all reach each other.
func (g graph) cycles() (found [][]int) {
	for _, group := range g.groups() {
		if len(group) > 1 {
			found = append(found, g.shortestCycle(group))
		}
	}
	return found
}

// shortestCycle goes from the first of the group through it and back, by as few steps as there are.
func (g graph) shortestCycle(group []int) []int {
	begin := group[0]
	from := map[int]int{}
	for queue := []int{begin}; len(queue) > 0; queue = queue[1:] {
		for _, next := range g[queue[0]] {
			if next == begin {
				return pathTo(queue[0], begin, from)
			}
			if _, met := from[next]; !met && slices.Contains(group, next) {
				from[next] = queue[0]
				queue = append(queue, next)
			}
		}
	}
	return group
}

func pathTo(node, begin int, from map[int]int) []int {
	path := []int{node}
	for node != begin {
		node = from[node]
		path = append(path, node)
	}
	slices.Reverse(path)
	return path
}

// walk is a search for the groups of nodes that reach each other (Tarjan's).
type walk struct {
	graph  graph
	number []int // when a node was met; 0: not yet
	low    []int // the earliest that it reaches
	stack  []int
	on     []bool
	met    int
	groups [][]int
}

func (g graph) groups() [][]int {
	w := &walk{graph: g, number: make([]int, len(g)), low: make([]int, len(g)), on: make([]bool, len(g))}
	for node := range g {
		if w.number[node] == 0 {
			w.visit(node)
		}
	}
	return w.groups
}

func (w *walk) visit(node int) {
	w.met++
	w.number[node], w.low[node] = w.met, w.met
	w.stack, w.on[node] = append(w.stack, node), true
	for _, next := range w.graph[node] {
		if w.number[next] == 0 {
			w.visit(next)
			w.low[node] = min(w.low[node], w.low[next])
		} else if w.on[next] {
			w.low[node] = min(w.low[node], w.number[next])
		}
	}
	if w.low[node] != w.number[node] {
		return
	}
	begin := len(w.stack) - 1
	for w.stack[begin] != node {
		begin--
	}
	group := slices.Clone(w.stack[begin:])
	for _, member := range group {
		w.on[member] = false
	}
	w.stack, w.groups = w.stack[:begin], append(w.groups, group)
}
