package store

import (
	"fmt"
	"runtime"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// failure is the first thing that an embedded server could not live with. Etcd reports such a thing to its log and expects the
// log to end the process, or to panic. Here only the goroutine that found it ends: the server stands still, which its
// clients see as etcd being away, and the process lives to say why.
type failure struct {
	once     sync.Once
	happened chan struct{}
	cause    error
}

func newFailure() *failure { return &failure{happened: make(chan struct{})} }

func (f *failure) set(cause error) {
	f.once.Do(func() {
		f.cause = cause
		close(f.happened)
	})
}

// err returns the cause, or nil as long as nothing happened.
func (f *failure) err() error {
	select {
	case <-f.happened:
		return f.cause
	default:
		return nil
	}
}

// OnWrite is called by the log for what is fatal. It must not return.
func (f *failure) OnWrite(entry *zapcore.CheckedEntry, fields []zap.Field) {
	cause := fmt.Errorf("etcd: %s", entry.Message)
	for _, field := range fields {
		if err, ok := field.Interface.(error); ok {
			cause = fmt.Errorf("etcd: %s: %w", entry.Message, err)
		}
	}
	f.set(cause)
	runtime.Goexit()
}

// logger makes etcd's log, to a file or to nowhere.
func (f *failure) logger(file string) (*zap.Logger, func(), error) {
	core, closeFile := zapcore.NewNopCore(), func() {}
	if file != "" {
		sink, closeSink, err := zap.Open(file)
		if err != nil {
			return nil, nil, fmt.Errorf("open etcd's log: %w", err)
		}
		core = zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), sink, zapcore.WarnLevel)
		closeFile = closeSink
	}
	return zap.New(core, zap.WithFatalHook(f), zap.WithPanicHook(f)), closeFile, nil
}
