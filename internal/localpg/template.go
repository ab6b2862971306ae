package localpg

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// templateSegment is the size of the segments of the write-ahead log, in megabytes, of data that live for a test.
const templateSegment = "1"

// copyTemplate makes data by copying the data of an earlier initdb, which takes a tenth of the time of another one.
func (s *Server) copyTemplate(ctx context.Context, data string) error {
	template, err := s.template(ctx)
	if err != nil {
		return fmt.Errorf("prepare the template: %w", err)
	}
	return s.copyStopped(template, data)
}

// copyStopped makes data by copying those of a server that was stopped in order, or never started.
func (s *Server) copyStopped(model, data string) error {
	if isFile(postmasterFile(model)) {
		return fmt.Errorf("%s cannot be copied: its server runs, or was not stopped in order", model)
	}
	// Nobody else has a hand in the copy until it is complete.
	if err := os.Chown(data, os.Getuid(), os.Getgid()); err != nil {
		return fmt.Errorf("copy %s: %w", model, err)
	}
	if err := s.copyFolder(model, data); err != nil {
		return fmt.Errorf("copy %s: %w", model, err)
	}
	if err := setIdentifier(data, newIdentifier()); err != nil {
		return err
	}
	// Everything in it is the server's user's by now, and reached through it alone.
	if err := s.owner.give(data); err != nil {
		return fmt.Errorf("give the data to %s: %w", s.owner.name, err)
	}
	return nil
}

// template returns the folder of an initialised cluster, and makes it if there is none. Processes that need the same one
// at the same time wait for the first of them.
func (s *Server) template(ctx context.Context) (string, error) {
	cache, err := s.templateCache()
	if err != nil {
		return "", err
	}
	name := filepath.Join(cache, s.templateKey())
	if isFile(filepath.Join(name, "data", "PG_VERSION")) {
		return filepath.Join(name, "data"), nil
	}
	lock, err := waitLock(ctx, name+".lock")
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if !isFile(filepath.Join(name, "data", "PG_VERSION")) {
		if err := s.makeTemplate(ctx, name); err != nil {
			return "", err
		}
	}
	return filepath.Join(name, "data"), nil
}

// makeTemplate builds the template under another name. The caller holds its lock.
func (s *Server) makeTemplate(ctx context.Context, name string) error {
	building := name + ".new"
	data := filepath.Join(building, "data")
	if err := errors.Join(os.RemoveAll(building), os.Mkdir(building, 0o711), os.Chmod(building, 0o711),
		os.Mkdir(data, 0o700), s.owner.give(data)); err != nil {
		return err
	}
	err := s.initdb(ctx, data)
	if err == nil && !s.config.Whole {
		err = s.dropTemplates(ctx, data)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(building))
	}
	return os.Rename(building, name)
}

// dropTemplates drops the databases that others would be made from.
func (s *Server) dropTemplates(ctx context.Context, data string) error {
	const script = "UPDATE pg_database SET datistemplate = false;\nDROP DATABASE template0;\nDROP DATABASE template1;\n"
	err := s.owner.runWith(ctx, s.config.Dir, nil, strings.NewReader(script), filepath.Join(s.installation.Bin, "postgres"), "--single", "-D", data, "postgres")
	if err != nil {
		return err
	}
	for _, left := range []string{"1", "4"} { // template1's number, and template0's in most versions
		if entries, err := os.ReadDir(filepath.Join(data, "base", left)); err == nil && len(entries) > 0 {
			return fmt.Errorf("the database in base/%s was not dropped", left)
		}
	}
	return nil
}

// templateKey names all that a template depends on.
func (s *Server) templateKey() string {
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %q %q %q %q %d %t", s.installation.Bin, s.installation.Version, s.config.Superuser, s.config.Locale, templateSegment, s.owner.uid, s.config.Whole)
	return fmt.Sprintf("pg%d-%s", s.installation.Major, hex.EncodeToString(hash.Sum(nil)[:8]))
}

// templateCache is the folder of all templates: in the user's cache, or where the server's user cannot go there, in the
// machine's folder for temporary files. There somebody else may have put a folder of that name, so its owner is checked.
func (s *Server) templateCache() (string, error) {
	folder := filepath.Join(os.TempDir(), fmt.Sprintf("cleave-templates-%d", os.Getuid()))
	if cache, err := os.UserCacheDir(); err == nil && s.owner.mustEnter(cache, "") == nil {
		folder = filepath.Join(cache, "cleave", "templates")
	}
	folder, err := realPath(folder)
	if err != nil {
		return "", err
	}
	if err := s.owner.mustEnter(filepath.Dir(folder), "temporary files"); err != nil {
		return "", err
	}
	if err := (&creation{}).folder(folder, s.owner); err != nil {
		return "", err
	}
	info, err := os.Lstat(folder)
	if err != nil {
		return "", err
	}
	if !info.IsDir() || ownerOf(info) != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
		return "", fmt.Errorf("%s is not a folder that this user alone can write to: remove it", folder)
	}
	return folder, nil
}

// waitLock waits for a lock between processes.
func waitLock(ctx context.Context, path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		locked, err := tryLock(file)
		if locked {
			return file, nil
		}
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), file.Close())
		case <-time.After(pause):
		}
	}
}

// copyFolder copies folders and plain files, for the server's user; a cluster fresh from initdb has nothing else. The template belongs to the
// server's user, so the copying does not follow links out of it.
func (s *Server) copyFolder(from, to string) error {
	source, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer source.Close()
	return fs.WalkDir(source.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == ".":
			return nil
		case entry.IsDir():
			folder := filepath.Join(to, path)
			return errors.Join(os.Mkdir(folder, 0o700), s.owner.give(folder))
		case entry.Type().IsRegular():
			return s.copyFile(source, path, filepath.Join(to, path))
		default:
			return fmt.Errorf("%s is neither a file nor a folder", path)
		}
	})
}

func (s *Server) copyFile(source *os.Root, path, to string) (err error) {
	from, err := source.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	if err := copyContent(target, from); err != nil {
		return err
	}
	if err := s.owner.giveOpen(target); err != nil {
		return err
	}
	if s.config.Fast {
		return nil
	}
	return target.Sync()
}
