package plan

// isPlain says whether a session that has run the statement need not think about it any more.
func (s *Statement) isPlain() bool {
	return s.Command == Pass && s.Pin == "" && !s.Taints && !s.Schema && !s.NeedsSession && s.Cursor == nil &&
		len(s.Settings) == 0 && len(s.Creates) == 0 && len(s.Drops) == 0 && len(s.Virtual)+len(s.Numbers) == 0 && len(s.Route.Numbers) == 0
}

// MarkPlain notes which statements are plain.
func (p *Plan) MarkPlain() {
	for i := range p.Statements {
		p.Statements[i].Plain = p.Statements[i].isPlain()
	}
}
