package dev

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// state is what the folder holds, written down in cluster.json before it is made.
type state struct {
	// Format is the version of this form.
	Format int `json:"format"`
	// Complete is whether the cluster has been made; before that all servers are on their way into the map.
	Complete bool `json:"complete"`
	// Replicas is how many each shard has.
	Replicas int           `json:"replicas"`
	Servers  []serverState `json:"servers"`
}

// serverState is one shard's servers.
type serverState struct {
	Name string `json:"name"`
	// Port is where the primary listens, 0 before its first start; Replicas has the replicas' ports.
	Port     int   `json:"port"`
	Replicas []int `json:"replicas,omitempty"`
	// Made is whether the primary has been started: from then on its folder must be there.
	Made bool `json:"made"`
}

const stateFormat = 1

func statePath(dir string) string { return filepath.Join(dir, "cluster.json") }

// readState returns nil if the folder has none.
func readState(dir string) (*state, error) {
	data, err := os.ReadFile(statePath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // a new folder
	}
	if err != nil {
		return nil, err
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", statePath(dir), err)
	}
	if s.Format != stateFormat {
		return nil, fmt.Errorf("%s has format %d, this program knows %d", statePath(dir), s.Format, stateFormat)
	}
	return &s, nil
}

// writeState replaces the file in one step, and is durable when it returns.
func writeState(dir string, s *state) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return writeDurably(statePath(dir), append(data, '\n'))
}

func writeDurably(path string, data []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // fails harmlessly once it has been renamed
	_, err = temporary.Write(data)
	if err = errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(temporary.Name(), path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder makes a rename durable.
func syncFolder(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}
