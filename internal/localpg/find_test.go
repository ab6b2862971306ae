package localpg

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// writeInstallation makes a folder whose server says it has the version.
func writeInstallation(t *testing.T, folder, version string) string {
	t.Helper()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\necho 'postgres (PostgreSQL) %s (Distribution %s-1)'\n", version, version)
	for _, program := range []string{"postgres", "initdb"} {
		if err := os.WriteFile(filepath.Join(folder, program), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestInstallationsNewestFirst(t *testing.T) {
	root := t.TempDir()
	var folders []string
	for _, version := range []string{"15.9", "9.6.24", "18beta1", "15.14", "17.2"} {
		folders = append(folders, writeInstallation(t, filepath.Join(root, version), version))
	}
	link := filepath.Join(root, "link")
	if err := os.Symlink(folders[0], link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, installation := range installationsIn(t.Context(), append(folders, link, filepath.Join(root, "empty"), filepath.Join(root, "none"))) {
		got = append(got, installation.Version)
	}
	if want := []string{"18beta1", "17.2", "15.14", "15.9", "9.6.24"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestLinkOnThePath: distributions put links to the programs on the path.
func TestLinkOnThePath(t *testing.T) {
	root := t.TempDir()
	folder := writeInstallation(t, filepath.Join(root, "real"), "16.1")
	onPath := filepath.Join(root, "path")
	if err := errors.Join(os.Mkdir(onPath, 0o755), os.Symlink(filepath.Join(folder, "initdb"), filepath.Join(onPath, "initdb"))); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", onPath)
	if got := installationsIn(t.Context(), foldersOnPath()); len(got) != 1 || got[0].Bin != folder || got[0].Major != 16 {
		t.Errorf("got %v", got)
	}
}

func TestVariableNamesTheOnlyInstallation(t *testing.T) {
	folder := writeInstallation(t, filepath.Join(t.TempDir(), "old"), "14.3")
	t.Setenv(binVariable, folder)
	found, err := Find(t.Context())
	if err != nil || len(found) != 1 || found[0].Version != "14.3" {
		t.Fatalf("got %v, %v", found, err)
	}
	if chosen, err := choose(t.Context(), "", 0); err != nil || chosen.Major != 14 {
		t.Errorf("an old version that is named is not chosen: %v, %v", chosen, err)
	}
	empty := t.TempDir()
	t.Setenv(binVariable, empty)
	_, err = Find(t.Context())
	if err == nil || errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), binVariable) || !strings.Contains(err.Error(), empty) {
		t.Errorf("got %v", err)
	}
}

// TestProgramsFitTheData: data are opened by the version that made them, or not at all.
func TestProgramsFitTheData(t *testing.T) {
	folder := writeInstallation(t, filepath.Join(t.TempDir(), "bin"), "16.1")
	t.Setenv(binVariable, folder)
	for bin, data := range map[string]int{"": 15, folder: 17} {
		if _, err := choose(t.Context(), bin, data); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("version %d", data)) {
			t.Errorf("got %v", err)
		}
		if chosen, err := choose(t.Context(), bin, 16); err != nil || chosen.Bin != folder {
			t.Errorf("got %v, %v", chosen, err)
		}
	}
}

func TestWhatToInstall(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the names of systems are those of Linux")
	}
	for release, want := range map[string]string{
		"ID=debian\n": "apt-get install postgresql",
		"NAME=x\nID=linuxmint\nID_LIKE=\"ubuntu debian\"\n": "apt-get install postgresql",
		"ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n":    "dnf install @postgresql:16",
		"ID=fedora\n": "dnf install postgresql-server",
		"ID=alpine\n": "apk add postgresql",
		"ID=other\n":  "",
	} {
		file := filepath.Join(t.TempDir(), "os-release")
		if err := os.WriteFile(file, []byte(release), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := strings.Trim(installCommand(osRelease(file)), " ()"); got != want {
			t.Errorf("%q: got %q, want %q", release, got, want)
		}
	}
	if hint := installHint(); !strings.Contains(hint, binVariable) {
		t.Errorf("got %q", hint)
	}
}

// TestVersionsAreAskedForOnce: each time costs the loading of all the server's libraries. A program that was replaced is another one.
func TestVersionsAreAskedForOnce(t *testing.T) {
	folder := writeInstallation(t, filepath.Join(t.TempDir(), "bin"), "16.1")
	server := filepath.Join(folder, "postgres")
	script := "#!/bin/sh\necho asked >> " + filepath.Join(folder, "asked") + "\necho 'postgres (PostgreSQL) %s'\n"
	for i, version := range []string{"16.1", "16.10"} { // not of the same length, since a file's time may be a coarse one
		if err := os.WriteFile(server, fmt.Appendf(nil, script, version), 0o755); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if found, err := inspect(t.Context(), folder); err != nil || found.Version != version {
				t.Fatalf("got %v, %v, want version %s", found, err, version)
			}
		}
		if asked, err := os.ReadFile(filepath.Join(folder, "asked")); err != nil || strings.Count(string(asked), "asked") != i+1 {
			t.Errorf("asked %q, %v", asked, err)
		}
	}
}
