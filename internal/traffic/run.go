package traffic

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/cleavedb/cleave/internal/topology"
)

// RunConfig says what [Counter.Run] follows, and to whom it reports.
type RunConfig struct {
	// Map returns the newest map, nil if there is none yet, and Changed a channel that is closed when there is a newer one. Required.
	Map     func() *topology.Map
	Changed func() <-chan struct{}
	// Write hands a report on, and says whether somebody took it. Required.
	Write func(body json.RawMessage) bool
	// Every is how often rates are looked at, and so how often they are written at most. Default: 15 seconds.
	Every time.Duration
	// Logger hears what nobody is told. Required.
	Logger *slog.Logger
}

const defaultEvery = 15 * time.Second

// Run follows the map, and reports rates when they have changed noticeably, until the context ends.
func (c *Counter) Run(ctx context.Context, config RunConfig) {
	if config.Every == 0 {
		config.Every = defaultEvery
	}
	ticker := time.NewTicker(config.Every)
	defer ticker.Stop()
	var written Report // nothing was counted, as long as nothing is written
	for {
		changed := config.Changed()
		if m := config.Map(); m != nil {
			c.Follow(m, time.Now())
		}
		select {
		case <-changed:
		case <-ticker.C:
			if next := c.Report(time.Now()); next.differsFrom(written) && config.write(next) {
				written = next
			}
		case <-ctx.Done():
			return
		}
	}
}

func (c RunConfig) write(r Report) bool {
	body, err := json.Marshal(r)
	if err != nil { // of plain values
		c.Logger.Warn("how much traffic ranges have could not be written", "error", err)
		return false
	}
	return c.Write(body)
}
