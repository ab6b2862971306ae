package localpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// creation remembers what a start has made.
type creation struct {
	folders []string // the outermost first
	dir     string   // of the server
	data    string   // "" if the data were there before
}

// folder makes the server's folder and what is missing above it, so that the server's user can pass.
func (c *creation) folder(dir string, owner account) error {
	c.dir = dir
	mode := os.FileMode(0o700)
	if owner.foreign {
		mode = 0o711
	}
	for _, ancestor := range ancestors(dir) {
		err := os.Mkdir(ancestor, mode)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err == nil {
			c.folders = append(c.folders, ancestor)
			err = os.Chmod(ancestor, mode) // the process's mask may have taken away from it
		}
		if err != nil {
			return fmt.Errorf("make the server's folder: %w", err)
		}
	}
	return openOwn(dir, owner)
}

// openOwn lets the server's user pass a folder of ours that was there before, such as one made by os.MkdirTemp.
func openOwn(dir string, owner account) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at the server's folder: %w", err)
	}
	if owner.foreign && !owner.mayEnter(info) && ownerOf(info) == os.Getuid() {
		if err := os.Chmod(dir, info.Mode().Perm()|0o011); err != nil {
			return fmt.Errorf("let the server into its folder: %w", err)
		}
	}
	return owner.mustEnter(dir, "the server's folder")
}

// undo removes what was made, unless somebody else is in the folder by now; folders that hold something else stay. It may
// be called again.
func (c *creation) undo() error {
	if c.data == "" && len(c.folders) == 0 {
		return nil
	}
	lock, err := takeLock(c.dir)
	if err == nil && lock != nil {
		err = errors.Join(c.empty(), lock.Close())
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove what was made: %w", err)
	}
	for i := len(c.folders) - 1; i >= 0; i-- {
		_ = os.Remove(c.folders[i]) // another server may have its folder there
	}
	return nil
}

// empty removes the data that were made, and what stands beside them if there are no others.
func (c *creation) empty() error {
	if c.data != "" {
		if err := os.RemoveAll(c.data); err != nil {
			return err
		}
		c.data = "" // whatever is there later is not ours
	}
	if _, err := os.Lstat(filepath.Join(c.dir, dataName)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var failures []error
	for _, name := range []string{logName, passwordName, lockName} {
		if err := os.Remove(filepath.Join(c.dir, name)); !errors.Is(err, os.ErrNotExist) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

const unfinished = "data.new-"

// ensureData makes the data if there are none. The caller holds the folder's lock.
func (s *Server) ensureData(ctx context.Context, makeData maker) error {
	if err := removeUnfinished(s.config.Dir); err != nil {
		return err
	}
	there, err := hasData(s.config.Dir, s.config.data())
	if err != nil || there {
		return err
	}
	fresh, err := os.MkdirTemp(s.config.Dir, unfinished)
	if err != nil {
		return fmt.Errorf("make a data folder: %w", err)
	}
	err = errors.Join(s.owner.give(fresh), ctx.Err())
	if err == nil {
		err = makeData(ctx, s, fresh)
	}
	if err == nil {
		err = os.Rename(fresh, s.config.data())
	}
	if err != nil {
		return fmt.Errorf("make the data: %w", errors.Join(err, removeBusy(fresh)))
	}
	s.made.data = s.config.data()
	return s.syncFolder(s.config.Dir)
}

// removeUnfinished clears away what an interrupted start has left.
func removeUnfinished(dir string) error {
	left, err := filepath.Glob(filepath.Join(escapePattern(dir), unfinished+"*"))
	if err != nil {
		return err
	}
	for _, folder := range left {
		if err := removeBusy(folder); err != nil {
			return fmt.Errorf("remove unfinished data: %w", err)
		}
	}
	return nil
}

// removeBusy removes a folder in which a program may still be at work for a moment: the server that initdb has started hears
// of the end of initdb, and of who started that, only when it next reads or writes.
func removeBusy(folder string) error {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := os.RemoveAll(folder)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// escapePattern makes a pattern of a path that matches that path alone.
func escapePattern(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// hasData says whether there are data to open, and refuses what is neither data nor an empty place for them.
func hasData(dir, data string) (bool, error) {
	if isFile(filepath.Join(dir, "PG_VERSION")) {
		return false, fmt.Errorf("%s is itself a data folder of PostgreSQL: name a folder for the server, which will hold one", dir)
	}
	entries, err := os.ReadDir(data)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for data: %w", err)
	case len(entries) == 0:
		return false, os.Remove(data)
	case isFile(filepath.Join(data, "PG_VERSION")) && isFile(filepath.Join(data, controlFile)):
		return true, nil
	default:
		return false, fmt.Errorf("%s holds something that is not a complete data folder of PostgreSQL: move it away to have a new one made", data)
	}
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// syncFolder makes the renaming of a file in it last, unless nothing is meant to.
func (s *Server) syncFolder(dir string) error {
	if s.config.Fast {
		return nil
	}
	folder, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync the server's folder: %w", err)
	}
	defer folder.Close()
	if err := folder.Sync(); err != nil {
		return fmt.Errorf("sync the server's folder: %w", err)
	}
	return nil
}

// initialise is the maker of a new primary's data.
func initialise(ctx context.Context, s *Server, data string) error {
	switch {
	case s.config.Model != "":
		return s.copyStopped(filepath.Join(s.config.Model, dataName), data)
	case s.config.Template && s.password == "":
		return s.copyTemplate(ctx, data)
	default:
		return s.initdb(ctx, data)
	}
}

// initdb makes data in the default locale of the system's choice if the caller named none.
func (s *Server) initdb(ctx context.Context, data string) error {
	if s.config.Locale != "" {
		return s.initdbIn(ctx, data, s.config.Locale)
	}
	err := s.initdbIn(ctx, data, "C.UTF-8")
	if err != nil && strings.Contains(err.Error(), "invalid locale name") {
		return s.initdbIn(ctx, data, "C")
	}
	return err
}

func (s *Server) initdbIn(ctx context.Context, data, locale string) error {
	arguments := []string{
		"--pgdata=" + data, "--username=" + s.config.Superuser,
		"--encoding=UTF8", "--locale=" + locale, "--no-instructions",
	}
	if s.config.Fast {
		arguments = append(arguments, "--no-sync")
	}
	if s.config.Template {
		// Half of what there is to copy would be the rest of a segment of the usual size.
		arguments = append(arguments, "--wal-segsize="+templateSegment)
	}
	method := "trust"
	if s.password != "" {
		method = "scram-sha-256"
		file, err := s.lendPassword()
		if err != nil {
			return err
		}
		defer os.Remove(file)
		arguments = append(arguments, "--pwfile="+file)
	}
	arguments = append(arguments, "--auth="+method)
	return s.owner.run(ctx, s.config.Dir, nil, filepath.Join(s.installation.Bin, "initdb"), arguments...)
}

// lendPassword writes the password where the server's user can read it, which the caller's file need not allow.
func (s *Server) lendPassword() (string, error) {
	file, err := os.CreateTemp(s.config.Dir, "password-")
	if err != nil {
		return "", fmt.Errorf("hand on the password: %w", err)
	}
	_, writeErr := file.WriteString(s.password + "\n")
	if err := errors.Join(writeErr, file.Close(), s.owner.give(file.Name())); err != nil {
		return "", errors.Join(fmt.Errorf("hand on the password: %w", err), os.Remove(file.Name()))
	}
	return file.Name(), nil
}
