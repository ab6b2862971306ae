package topology

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/secret"
)

// MaxShardNumber is the greatest number a shard can have. Numbers are never used again, so this many shards can ever be
// added to one cluster.
const MaxShardNumber = 1<<16 - 1

// State says what a shard may be used for.
type State string

// The states of a shard.
const (
	// Active shards serve, and new ranges may be assigned to them.
	Active State = "active"
	// Draining shards serve, but nothing new is assigned to them.
	Draining State = "draining"
	// ReadOnly shards answer reads; writes are refused.
	ReadOnly State = "read-only"
	// Maintenance means that the shard is not to be used for now.
	Maintenance State = "maintenance"
)

// States lists the states of a shard.
func States() []State { return []State{Active, Draining, ReadOnly, Maintenance} }

// InstanceSpec describes one PostgreSQL server process of a shard.
type InstanceSpec struct {
	// Address is host:port.
	Address string `json:"address"`
	// Labels such as region say where the instance is.
	Labels map[string]string `json:"labels,omitempty"`
}

// ShardSpec describes a shard: what [AddShard] takes, and its JSON form.
type ShardSpec struct {
	Name string `json:"name"`
	// Number is small, stands for the shard wherever a name is too long, and is never used again. 0 means: the next one.
	Number   int            `json:"number"`
	Primary  InstanceSpec   `json:"primary"`
	Replicas []InstanceSpec `json:"replicas,omitempty"`
	// Database, User, Password, SSLMode and SSLRootCert say how to connect. What is empty comes from the configuration
	// of the process that connects. Password is where to find it, never the password.
	Database    string           `json:"database,omitempty"`
	User        string           `json:"user,omitempty"`
	Password    secret.Reference `json:"password,omitzero"`
	SSLMode     string           `json:"sslmode,omitempty"`
	SSLRootCert string           `json:"sslrootcert,omitempty"`
	// Weight is the share of data the shard should get, beside the other shards' weights. 0 means 1.
	Weight float64           `json:"weight"`
	Labels map[string]string `json:"labels,omitempty"`
	// State is active if empty.
	State State `json:"state"`
	// MinimumVersion is the oldest map version that a router may have to speak to this shard.
	MinimumVersion uint64 `json:"minimum_version,omitempty"`
}

// Shard is one PostgreSQL database: a primary and its replicas.
type Shard struct{ spec ShardSpec }

// Name returns the shard's name.
func (s *Shard) Name() string { return s.spec.Name }

// Number returns the shard's small number.
func (s *Shard) Number() int { return s.spec.Number }

// Primary returns the address of the instance that takes writes.
func (s *Shard) Primary() string { return s.spec.Primary.Address }

// State returns what the shard may be used for.
func (s *Shard) State() State { return s.spec.State }

// Weight returns the share of data the shard should get, beside the other shards' weights.
func (s *Shard) Weight() float64 { return s.spec.Weight }

// Label returns the value of a label, empty if the shard does not have it.
func (s *Shard) Label(name string) string { return s.spec.Labels[name] }

// MinimumVersion returns the oldest map version that a router may have to speak to this shard.
func (s *Shard) MinimumVersion() uint64 { return s.spec.MinimumVersion }

// Spec returns a copy of the description.
func (s *Shard) Spec() ShardSpec { return s.spec.clone() }

func (s ShardSpec) clone() ShardSpec {
	s.Labels = maps.Clone(s.Labels)
	s.Primary.Labels = maps.Clone(s.Primary.Labels)
	s.Replicas = slices.Clone(s.Replicas)
	for i := range s.Replicas {
		s.Replicas[i].Labels = maps.Clone(s.Replicas[i].Labels)
	}
	return s
}

// newShard checks the description and fills in defaults.
func newShard(spec ShardSpec) (*Shard, error) {
	spec = spec.clone()
	if spec.Weight == 0 {
		spec.Weight = 1
	}
	if spec.State == "" {
		spec.State = Active
	}
	if err := checkName("shard", spec.Name); err != nil {
		return nil, err
	}
	if err := spec.check(); err != nil {
		return nil, fmt.Errorf("shard %q: %w", spec.Name, err)
	}
	return &Shard{spec}, nil
}

func (s ShardSpec) check() error {
	if s.Number < 1 || s.Number > MaxShardNumber {
		return fmt.Errorf("number %d is not between 1 and %d", s.Number, MaxShardNumber)
	}
	if s.Weight < 0 || math.IsInf(s.Weight, 0) || math.IsNaN(s.Weight) {
		return fmt.Errorf("weight %v is not a number above 0", s.Weight)
	}
	if !slices.Contains(States(), s.State) {
		return fmt.Errorf("state %q is none of active, draining, read-only, maintenance", s.State)
	}
	if err := s.checkAccess(); err != nil {
		return err
	}
	if err := checkLabels(s.Labels); err != nil {
		return err
	}
	return s.checkInstances()
}

// SSLModes lists the ways to use TLS towards a shard, as libpq names them. Its allow and prefer are not among them: they fall
// back to plain text in silence.
func SSLModes() []string { return []string{"disable", "require", "verify-ca", "verify-full"} }

func (s ShardSpec) checkAccess() error {
	if s.SSLMode != "" && !slices.Contains(SSLModes(), s.SSLMode) {
		return fmt.Errorf("sslmode %q is none of %s", s.SSLMode, strings.Join(SSLModes(), ", "))
	}
	for _, identifier := range []string{s.Database, s.User} {
		if identifier == "" {
			continue
		}
		if err := checkIdentifier(identifier); err != nil {
			return err
		}
	}
	if s.Password.IsZero() {
		return nil
	}
	if err := s.Password.Check(); err != nil {
		return fmt.Errorf("password: %w", err)
	}
	return nil
}

func (s ShardSpec) checkInstances() error {
	seen := map[string]bool{}
	for _, instance := range append([]InstanceSpec{s.Primary}, s.Replicas...) {
		if err := checkAddress(instance.Address); err != nil {
			return err
		}
		if err := checkLabels(instance.Labels); err != nil {
			return fmt.Errorf("instance %s: %w", instance.Address, err)
		}
		if seen[instance.Address] {
			return fmt.Errorf("instance %s is named twice", instance.Address)
		}
		seen[instance.Address] = true
	}
	return nil
}
