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

	"yunion.io/x/ocadm/cluster"
)

// ServeLocal serves the API and the page on a loopback address, without TLS, until ctx ends. The link grants the permissions of o.Config; its token
// changes with each start. ready receives the link when the server listens.
func ServeLocal(ctx context.Context, o Options, namespace string, ready func(link string)) error {
	o.Local = rand.Text()
	metrics, err := newOperatorMetrics(ctx, o.Config)
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
	ctx  context.Context //nolint:containedctx // Gather has none
	pods *kubernetes.Clientset
}

func newOperatorMetrics(ctx context.Context, cfg *rest.Config) (*operatorMetrics, error) {
	pods, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the API server: %w", err)
	}
	return &operatorMetrics{ctx, pods}, nil
}

// metricsPort is the operator's port for metrics, metricsTimeout bounds reading those of a pod: one on a lost node must not hide the leader's.
const metricsPort, metricsTimeout = "8080", 5 * time.Second

// Gather reads the metrics once.
func (m *operatorMetrics) Gather() ([]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(m.ctx, metricsTimeout)
	defer cancel()
	running := metav1.ListOptions{LabelSelector: "app=" + cluster.OperatorName, FieldSelector: "status.phase=" + string(corev1.PodRunning)}
	pods, err := m.pods.CoreV1().Pods(cluster.DefaultNamespace).List(ctx, running)
	if err != nil {
		return nil, fmt.Errorf("looking for the operator: %w", err)
	}
	err = errors.New("the operator does not run")
	var waits []*dto.MetricFamily
	for i := range pods.Items {
		families, failed := m.of(&pods.Items[i])
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

func (m *operatorMetrics) of(pod *corev1.Pod) ([]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(m.ctx, metricsTimeout)
	defer cancel()
	r, err := m.pods.CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, metricsPort, "/metrics", nil).Stream(ctx)
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
