package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// process is a program over all its lives. All methods are safe for concurrent use.
type process struct {
	what    string // for people
	log     string // the file that it writes to
	command func() *exec.Cmd

	mu   sync.Mutex
	life *life
}

// life is one run of the process.
type life struct {
	process *os.Process
	logged  int64 // how long the log was before
	ended   chan struct{}
	status  syscall.WaitStatus // when it has ended
}

// Start begins a new life if there is none. It does not wait until the process is ready.
func (p *process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life != nil && !p.life.hasEnded() {
		return nil
	}
	log, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	command := p.command()
	command.Stdout, command.Stderr, command.SysProcAttr = log, log, withParent()
	begun := &life{ended: make(chan struct{})}
	if begun.logged, err = log.Seek(0, io.SeekEnd); err != nil {
		return errors.Join(err, log.Close())
	}
	started := make(chan error)
	go func() {
		// The thread that started the process must not end before it: see withParent.
		runtime.LockOSThread()
		defer close(begun.ended)
		defer log.Close()
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait()
			begun.status = command.ProcessState.Sys().(syscall.WaitStatus)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.what, err)
	}
	begun.process = command.Process
	p.life = begun
	return nil
}

func (l *life) hasEnded() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

func (p *process) now() *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life
}

// PID is the number of the process, of the last one if none runs.
func (p *process) PID() int { return p.now().process.Pid }

// Running says whether there is a process.
func (p *process) Running() bool { return !p.now().hasEnded() }

// Kill ends the process outright, stopped or not, and waits for its end.
func (p *process) Kill() {
	l := p.now()
	_ = l.process.Kill()
	<-l.ended
}

// WaitKilled waits until the process has been killed, by itself or by others.
func (p *process) WaitKilled(ctx context.Context) error {
	l := p.now()
	select {
	case <-l.ended:
	case <-ctx.Done():
		return fmt.Errorf("%s does not end: %w", p.what, ctx.Err())
	}
	if l.status.Signal() != syscall.SIGKILL {
		return fmt.Errorf("%s was not killed, but ended by itself with status %d", p.what, l.status.ExitStatus())
	}
	return nil
}

// Stop halts the process: it does nothing, and nobody is told.
func (p *process) Stop() { _ = p.now().process.Signal(syscall.SIGSTOP) }

// Continue lets a process that was stopped go on.
func (p *process) Continue() { _ = p.now().process.Signal(syscall.SIGCONT) }
