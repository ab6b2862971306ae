package auth

import "testing"

// BenchmarkServer is what a client's login costs the router.
func BenchmarkServer(b *testing.B) {
	v := exampleVerifier(b)
	for b.Loop() {
		s := NewServer("user", v, nil)
		s.nonce = exampleServerNonce
		if _, err := s.First(mechanismPlain, []byte(exampleClientFirst)); err != nil {
			b.Fatal(err)
		}
		if _, _, err := s.Final([]byte(exampleClientFinal)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkClient is what a login to a shard costs the router.
func BenchmarkClient(b *testing.B) {
	_, keys, err := exampleServer(b).Final([]byte(exampleClientFinal))
	if err != nil {
		b.Fatal(err)
	}
	for name, secret := range map[string]Secret{"password": {Password: examplePassword}, "keys": {Keys: keys}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := exampleClient(secret).Step([]byte(exampleServerFirst)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
