package wire

// What an Authentication message asks for.
const (
	authenticationOK           = 0
	authenticationSASL         = 10
	authenticationSASLContinue = 11
	authenticationSASLFinal    = 12
)

func beginAuthentication(dst []byte, request uint32) (extended []byte, start int) {
	dst, start = begin(dst, RespAuthentication)
	return appendUint32(dst, request), start
}

// AppendAuthenticationOK appends that the client is let in.
func AppendAuthenticationOK(dst []byte) []byte {
	return finish(beginAuthentication(dst, authenticationOK))
}

// AppendAuthenticationSASL appends the request for SASL with one of the mechanisms.
func AppendAuthenticationSASL(dst []byte, mechanisms ...string) []byte {
	dst, start := beginAuthentication(dst, authenticationSASL)
	for _, m := range mechanisms {
		dst = appendString(dst, m)
	}
	return finish(append(dst, 0), start)
}

// AppendAuthenticationSASLContinue appends a challenge.
func AppendAuthenticationSASLContinue(dst, data []byte) []byte {
	dst, start := beginAuthentication(dst, authenticationSASLContinue)
	return finish(append(dst, data...), start)
}

// AppendAuthenticationSASLFinal appends the server's last word in SASL.
func AppendAuthenticationSASLFinal(dst, data []byte) []byte {
	dst, start := beginAuthentication(dst, authenticationSASLFinal)
	return finish(append(dst, data...), start)
}

// AppendNegotiateProtocolVersion appends that the server goes on with protocol 3.minor and without the options.
func AppendNegotiateProtocolVersion(dst []byte, minor uint16, options []string) []byte {
	dst, start := begin(dst, RespNegotiateProtocolVersion)
	dst = appendUint16(appendUint16(dst, ProtocolMajor), minor) // the manual says minor, servers and clients mean both
	dst = appendUint32(dst, uint32(len(options)))
	for _, o := range options {
		dst = appendString(dst, o)
	}
	return finish(dst, start)
}

// AppendParameterStatus appends the value of a setting.
func AppendParameterStatus[N, V Text](dst []byte, name N, value V) []byte {
	dst, start := begin(dst, RespParameterStatus)
	return finish(appendString(appendString(dst, name), value), start)
}

// AppendBackendKeyData appends what a request to cancel must show.
func AppendBackendKeyData(dst []byte, pid uint32, secret []byte) []byte {
	dst, start := begin(dst, RespBackendKeyData)
	return finish(append(appendUint32(dst, pid), secret...), start)
}

// AppendReadyForQuery appends ReadyForQuery with [StatusIdle], [StatusInTransaction] or [StatusFailed].
func AppendReadyForQuery(dst []byte, status byte) []byte {
	return append(dst, RespReadyForQuery, 0, 0, 0, lengthSize+1, status)
}

// AppendNotification appends a notification.
func AppendNotification[C, P Text](dst []byte, pid uint32, channel C, payload P) []byte {
	dst, start := begin(dst, RespNotification)
	dst = appendUint32(dst, pid)
	return finish(appendString(appendString(dst, channel), payload), start)
}

// AppendRowDescription appends a description of a result's columns.
func AppendRowDescription(dst []byte, columns []Column) []byte {
	dst, start := begin(dst, RespRowDescription)
	dst = appendUint16(dst, uint16(len(columns)))
	for i := range columns {
		dst = appendColumn(dst, &columns[i])
	}
	return finish(dst, start)
}

func appendColumn(dst []byte, c *Column) []byte {
	dst = appendString(dst, c.Name)
	dst = appendUint32(dst, c.TableOID)
	dst = appendUint16(dst, uint16(c.Attribute))
	dst = appendUint32(dst, c.TypeOID)
	dst = appendUint16(dst, uint16(c.TypeSize))
	dst = appendUint32(dst, uint32(c.TypeModifier))
	return appendUint16(dst, uint16(c.Format))
}

// AppendDataRow appends a row; a value that is nil is NULL.
func AppendDataRow(dst []byte, values [][]byte) []byte {
	dst, start := begin(dst, RespDataRow)
	return finish(appendValues(dst, values), start)
}

// AppendDataRowBody appends a row whose values are written already.
func AppendDataRowBody(dst, body []byte) []byte {
	dst, start := begin(dst, RespDataRow)
	return finish(append(dst, body...), start)
}

// AppendCommandComplete appends the end of a command.
func AppendCommandComplete[T Text](dst []byte, tag T) []byte {
	return appendStringMessage(dst, RespCommandComplete, tag)
}

// AppendParameterDescription appends the types of a statement's parameters.
func AppendParameterDescription(dst []byte, oids []uint32) []byte {
	dst, start := begin(dst, RespParameterDescription)
	return finish(appendOIDs(dst, oids), start)
}

// AppendEmptyQuery appends the answer to a query without a statement.
func AppendEmptyQuery(dst []byte) []byte { return appendEmpty(dst, RespEmptyQuery) }

// AppendParseComplete appends ParseComplete.
func AppendParseComplete(dst []byte) []byte { return appendEmpty(dst, RespParseComplete) }

// AppendBindComplete appends BindComplete.
func AppendBindComplete(dst []byte) []byte { return appendEmpty(dst, RespBindComplete) }

// AppendCloseComplete appends CloseComplete.
func AppendCloseComplete(dst []byte) []byte { return appendEmpty(dst, RespCloseComplete) }

// AppendNoData appends that a statement has no result to describe.
func AppendNoData(dst []byte) []byte { return appendEmpty(dst, RespNoData) }

// AppendPortalSuspended appends that Execute's limit of rows was reached.
func AppendPortalSuspended(dst []byte) []byte { return appendEmpty(dst, RespPortalSuspended) }
