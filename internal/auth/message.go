package auth

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Names of the mechanisms on the wire.
const (
	mechanismPlain = "SCRAM-SHA-256"
	mechanismPlus  = "SCRAM-SHA-256-PLUS"
)

// bindingType is the one kind of channel binding there is here: to the hash of the server's certificate.
const bindingType = "tls-server-end-point"

// How a client's first message begins: what it says about channel binding, and no authorisation identity.
const (
	headerNone      = "n,,"                     // the client cannot bind
	headerUnoffered = "y,,"                     // the client could, and thinks that the server cannot
	headerBound     = "p=" + bindingType + ",," // the client does
)

// maxMessage is far more than any message of the exchange has.
const maxMessage = 1024

const nonceBytes = 18

func newNonce() string {
	nonce := make([]byte, nonceBytes)
	_, _ = rand.Read(nonce) // never fails
	return encode(nonce)
}

// clientFirst is a client's first message.
type clientFirst struct {
	flag  string // "n", "y", or "p=" and a type of binding
	bare  string // all after the header
	nonce string
}

// errExtension and errIdentity are messages that are well formed and ask for what nobody offers.
var (
	errExtension = errors.New("client requires an unsupported SCRAM extension")
	errIdentity  = errors.New("client uses authorization identity, but it is not supported")
)

func parseClientFirst(message []byte) (clientFirst, error) {
	text, err := checkText(message)
	if err != nil {
		return clientFirst{}, err
	}
	parts := strings.SplitN(text, ",", 3)
	if len(parts) < 3 {
		return clientFirst{}, errors.New("the first message ends in its header")
	}
	if strings.HasPrefix(parts[1], "a=") {
		return clientFirst{}, errIdentity
	}
	if parts[1] != "" {
		return clientFirst{}, errors.New("the first message has something other than an authorization identity in its place")
	}
	first := clientFirst{flag: parts[0], bare: parts[2]}
	attributes := strings.Split(first.bare, ",")
	if strings.HasPrefix(attributes[0], "m=") {
		return clientFirst{}, errExtension
	}
	if len(attributes) < 2 {
		return clientFirst{}, errors.New("the first message has no nonce")
	}
	if _, err := attribute(attributes[0], 'n'); err != nil {
		return clientFirst{}, err
	}
	if first.nonce, err = attribute(attributes[1], 'r'); err != nil {
		return clientFirst{}, err
	}
	if err := errors.Join(checkNonce(first.nonce), checkExtensions(attributes[2:])); err != nil {
		return clientFirst{}, err
	}
	return first, nil
}

// clientFinal is a client's last message.
type clientFinal struct {
	binding      string // as it was sent, in base64
	nonce        string
	proof        []byte
	withoutProof string
}

func parseClientFinal(message []byte) (clientFinal, error) {
	text, err := checkText(message)
	if err != nil {
		return clientFinal{}, err
	}
	end := strings.LastIndexByte(text, ',')
	if end < 0 {
		return clientFinal{}, errors.New("the final message has no proof")
	}
	final := clientFinal{withoutProof: text[:end]}
	proof, err := attribute(text[end+1:], 'p')
	if err != nil {
		return clientFinal{}, err
	}
	if final.proof, err = decode(proof); err != nil || len(final.proof) != keyBytes {
		return clientFinal{}, errors.New("the proof in the final message has the wrong form")
	}
	attributes := strings.Split(final.withoutProof, ",")
	if len(attributes) < 2 {
		return clientFinal{}, errors.New("the final message has no nonce")
	}
	if final.binding, err = attribute(attributes[0], 'c'); err != nil {
		return clientFinal{}, err
	}
	if final.nonce, err = attribute(attributes[1], 'r'); err != nil {
		return clientFinal{}, err
	}
	return final, checkExtensions(attributes[2:])
}

// serverFirst is a server's first message.
type serverFirst struct {
	nonce      string
	salt       []byte
	iterations int
}

func parseServerFirst(message []byte) (serverFirst, error) {
	text, err := checkText(message)
	if err != nil {
		return serverFirst{}, err
	}
	attributes := strings.Split(text, ",")
	if len(attributes) < 3 {
		return serverFirst{}, errors.New("the message has no nonce, salt and iterations")
	}
	var first serverFirst
	if first.nonce, err = attribute(attributes[0], 'r'); err != nil {
		return serverFirst{}, err
	}
	salt, err := attribute(attributes[1], 's')
	if err != nil {
		return serverFirst{}, err
	}
	if first.salt, err = decode(salt); err != nil || len(first.salt) == 0 {
		return serverFirst{}, errors.New("the salt has the wrong form")
	}
	iterations, err := attribute(attributes[2], 'i')
	if err != nil {
		return serverFirst{}, err
	}
	count, err := strconv.ParseUint(iterations, 10, 31)
	if err != nil || count == 0 {
		return serverFirst{}, errors.New("the number of iterations has the wrong form")
	}
	first.iterations = int(count)
	return first, errors.Join(checkNonce(first.nonce), checkExtensions(attributes[3:]))
}

// parseServerFinal returns the server's signature.
func parseServerFinal(message []byte) ([]byte, error) {
	text, err := checkText(message)
	if err != nil {
		return nil, err
	}
	attributes := strings.Split(text, ",")
	if reason, refused := strings.CutPrefix(attributes[0], "e="); refused {
		return nil, fmt.Errorf("the server refused with %q", reason)
	}
	encoded, err := attribute(attributes[0], 'v')
	if err != nil {
		return nil, err
	}
	signature, err := decode(encoded)
	if err != nil || len(signature) != keyBytes {
		return nil, errors.New("the signature has the wrong form")
	}
	return signature, checkExtensions(attributes[1:])
}

func checkText(message []byte) (string, error) {
	switch {
	case len(message) == 0:
		return "", errors.New("the message is empty")
	case len(message) > maxMessage:
		return "", fmt.Errorf("the message has more than %d bytes", maxMessage)
	}
	text := string(message)
	if strings.IndexByte(text, 0) >= 0 {
		return "", errors.New("the message holds a zero byte")
	}
	return text, nil
}

// attribute returns the value of "name=value".
func attribute(text string, name byte) (string, error) {
	if len(text) < 2 || text[0] != name || text[1] != '=' {
		return "", fmt.Errorf("the attribute %c is not where it belongs", name)
	}
	return text[2:], nil
}

func checkNonce(nonce string) error {
	if nonce == "" {
		return errors.New("the nonce is empty")
	}
	for i := range len(nonce) {
		if nonce[i] <= ' ' || nonce[i] > '~' {
			return errors.New("the nonce holds characters that cannot be printed")
		}
	}
	return nil
}

// checkExtensions passes over attributes that are unknown, as long as they are attributes.
func checkExtensions(attributes []string) error {
	for _, text := range attributes {
		if len(text) < 2 || text[1] != '=' || !isLetter(text[0]) {
			return errors.New("something that is no attribute stands among the attributes")
		}
		if text[0] == 'm' {
			return errExtension
		}
	}
	return nil
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
