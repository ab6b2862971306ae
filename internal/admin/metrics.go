package admin

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts and times requests by route and status.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	labels := []string{"method", "route", "code"}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cleave_http_requests_total", Help: "Requests to the HTTP API that were answered.",
		}, labels),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "cleave_http_request_duration_seconds", Help: "How long requests to the HTTP API took.",
			Buckets: []float64{0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10, 60},
		}, labels),
	}
	for _, collector := range []prometheus.Collector{m.requests, m.seconds} {
		if err := registry.Register(collector); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// routeMetrics are those of one route. The series of a status is found once and kept.
type routeMetrics struct {
	metrics       *metrics
	method, route string
	byStatus      sync.Map // int → *statusMetrics
}

type statusMetrics struct {
	requests prometheus.Counter
	seconds  prometheus.Observer
}

func (m *metrics) route(method, path string) *routeMetrics {
	return &routeMetrics{metrics: m, method: method, route: path}
}

func (r *routeMetrics) note(status int, took time.Duration) {
	found, known := r.byStatus.Load(status)
	if !known {
		code := strconv.Itoa(status)
		found, _ = r.byStatus.LoadOrStore(status, &statusMetrics{
			requests: r.metrics.requests.WithLabelValues(r.method, r.route, code),
			seconds:  r.metrics.seconds.WithLabelValues(r.method, r.route, code),
		})
	}
	series := found.(*statusMetrics)
	series.requests.Inc()
	series.seconds.Observe(took.Seconds())
}
