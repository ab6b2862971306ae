package copydata

import (
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// rawEncodings are those in which a shard's own bytes come: its databases are in UTF8, and nothing is converted from SQL_ASCII.
const (
	utf8Encoding  = "UTF8"
	asciiEncoding = "SQL_ASCII"
)

// safeEncodings are those in which every byte below 128 is an ASCII character wherever it stands, by the name that
// PostgreSQL compares: lower case, letters and digits alone.
var safeEncodings = map[string]string{
	"utf8": utf8Encoding, "unicode": utf8Encoding, "sqlascii": asciiEncoding,
	"euccn": "EUC_CN", "eucjis2004": "EUC_JIS_2004", "eucjp": "EUC_JP", "euckr": "EUC_KR", "euctw": "EUC_TW", "muleinternal": "MULE_INTERNAL",
	"iso88591": "LATIN1", "iso88592": "LATIN2", "iso88593": "LATIN3", "iso88594": "LATIN4", "iso88599": "LATIN5", "iso885910": "LATIN6",
	"iso885913": "LATIN7", "iso885914": "LATIN8", "iso885915": "LATIN9", "iso885916": "LATIN10",
	"latin1": "LATIN1", "latin2": "LATIN2", "latin3": "LATIN3", "latin4": "LATIN4", "latin5": "LATIN5", "latin6": "LATIN6",
	"latin7": "LATIN7", "latin8": "LATIN8", "latin9": "LATIN9", "latin10": "LATIN10",
	"iso88595": "ISO_8859_5", "iso88596": "ISO_8859_6", "iso88597": "ISO_8859_7", "iso88598": "ISO_8859_8",
	"koi8": "KOI8R", "koi8r": "KOI8R", "koi8u": "KOI8U",
	"abc": "WIN1258", "tcvn": "WIN1258", "tcvn5712": "WIN1258", "vscii": "WIN1258", "alt": "WIN866", "win": "WIN1251",
	"win866": "WIN866", "win874": "WIN874", "win1250": "WIN1250", "win1251": "WIN1251", "win1252": "WIN1252", "win1253": "WIN1253",
	"win1254": "WIN1254", "win1255": "WIN1255", "win1256": "WIN1256", "win1257": "WIN1257", "win1258": "WIN1258",
	"windows866": "WIN866", "windows874": "WIN874", "windows1250": "WIN1250", "windows1251": "WIN1251", "windows1252": "WIN1252",
	"windows1253": "WIN1253", "windows1254": "WIN1254", "windows1255": "WIN1255", "windows1256": "WIN1256", "windows1257": "WIN1257",
	"windows1258": "WIN1258",
}

// canonicalEncoding returns PostgreSQL's name of an encoding whose bytes can be read one by one.
func canonicalEncoding(name string) (string, error) {
	bare := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		default:
			return -1
		}
	}, name)
	if canonical, safe := safeEncodings[bare]; safe {
		return canonical, nil
	}
	return "", pgerr.New(pgerr.FeatureNotSupported, "COPY into a sharded table is not supported with data in encoding %q", name).
		WithDetail("A character of it may have a byte that stands for a backslash, a quote or a delimiter elsewhere, or the encoding is not known.").
		WithHint("Convert the data to UTF8, and set client_encoding or COPY's option ENCODING to UTF8.")
}
