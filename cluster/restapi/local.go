// SPDX-License-Identifier: Apache-2.0

package restapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ServeLocal serves the API and the page on a loopback address, without TLS, until ctx ends. The link grants the permissions of o.Config; its token
// changes with each start. ready receives the link when the server listens.
func ServeLocal(ctx context.Context, o Options, namespace string, ready func(link string)) error {
	o.Local = rand.Text()
	metrics, err := newOperatorMetrics(ctx, o.Config, namespace)
	if err != nil {
		return err
	}
	o.Metrics = metrics
	return o.serve(ctx, func(l net.Listener) net.Listener { return l }, func(at net.Addr) {
		link := url.URL{Scheme: "http", Host: at.String(), Path: "/", Fragment: url.Values{"token": {o.Local}, "namespace": {namespace}}.Encode()}
		ready(link.String())
	})
}

// operatorMetrics reads the metrics of the operator's pod through the API server.
type operatorMetrics struct {
	ctx       context.Context //nolint:containedctx // Gather has none
	pods      *kubernetes.Clientset
	namespace string
}

func newOperatorMetrics(ctx context.Context, cfg *rest.Config, namespace string) (*operatorMetrics, error) {
	pods, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the API server: %w", err)
	}
	return &operatorMetrics{ctx, pods, namespace}, nil
}

// metricsPort is the operator's port for metrics, metricsTimeout bounds reading them.
const metricsPort, metricsTimeout = "8080", 5 * time.Second

// Gather reads the metrics once.
func (m *operatorMetrics) Gather() ([]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(m.ctx, metricsTimeout)
	defer cancel()
	pods, err := m.pods.CoreV1().Pods(m.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=onecloud-operator", FieldSelector: "status.phase=" + string(corev1.PodRunning)})
	if err != nil {
		return nil, fmt.Errorf("looking for the operator: %w", err)
	}
	err = errors.New("the operator does not run")
	var waits []*dto.MetricFamily
	for i := range pods.Items {
		families, failed := m.of(ctx, &pods.Items[i])
		switch {
		case failed != nil:
			err = failed
		case leads(families):
			return families, nil
		default:
			waits = families
		}
	}
	if waits != nil { // no replica leads now
		return waits, nil
	}
	return nil, err
}

func (m *operatorMetrics) of(ctx context.Context, pod *corev1.Pod) ([]*dto.MetricFamily, error) {
	r, err := m.pods.CoreV1().Pods(m.namespace).ProxyGet("http", pod.Name, metricsPort, "/metrics", nil).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of %s: %w", client.ObjectKeyFromObject(pod), err)
	}
	defer func() { _ = r.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	return slices.Collect(maps.Values(families)), err
}

// leads reports whether the metrics are from the replica that holds the lease: only that one counts the clouds.
func leads(families []*dto.MetricFamily) bool {
	return slices.ContainsFunc(families, func(f *dto.MetricFamily) bool {
		return f.GetName() == "leader_election_master_status" && slices.ContainsFunc(f.GetMetric(), func(m *dto.Metric) bool { return m.GetGauge().GetValue() == 1 })
	})
}
