// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/kubernetes/cmd/kubeadm/app/constants"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

// Kubelet files that a power cut emptied are recreated without losing anything else.
func TestRenewDamagedKubelet(t *testing.T) {
	h := controlPlaneEnding(t, 90*day)
	write(t, h, manifest(constants.Etcd), "spec: {containers: [{command: [etcd, --name=node1, --data-dir=/var/lib/etcd, --listen-client-urls=https://10.0.0.1:2379, "+
		"--advertise-client-urls=https://10.0.0.1:2379, --initial-advertise-peer-urls=https://10.0.0.1:2380]}]}")
	write(t, h, kubeletDir+"/pki/kubelet-client-old.pem", "")
	write(t, h, kubeletServing, "")
	write(t, h, kubeletServingKey, "")
	list, err := Certificates(h, time.Now(), 30*day)
	require.NoError(t, err)
	if got := finding.Of(Expiry(list, "node1")); len(got) != 1 || got[0].Code != "OCA-4422" || !strings.HasPrefix(got[0].Remedy, "ocadm certs renew") || len(got[0].Evidence) != 2 {
		t.Errorf("%+v", got)
	}
	if due, err := (&Renewal{Host: h, Unattended: true}).dueOf(kindKubelet); err != nil || len(due) != 0 {
		t.Errorf("the operator would renew %+v, %v", due, err)
	}
	n, err := PlanRenewal(t.Context(), h, time.Now(), 30*day, false)
	require.NoError(t, err)
	require.NoError(t, renewKubelet(t.Context(), n, workflow.Discard{}))
	cert, err := readCertificate(h, kubeletClientPEM)
	if err != nil || cert.Subject.CommonName != "system:node:node1" || !slices.Equal(cert.Subject.Organization, []string{"system:nodes"}) {
		t.Errorf("the kubelet's: %+v, %v", cert, err)
	}
	if h.Files.Exists(kubeletServing) || h.Files.Exists(kubeletServingKey) {
		t.Error("the kubelet would start with an empty serving certificate")
	}
	write(t, h, pkiDir+"/ca.crt", "")
	if _, err := Certificates(h, time.Now(), 30*day); len(finding.Of(err)) != 1 || finding.Of(err)[0].Code != "OCA-4422" || !strings.Contains(finding.Of(err)[0].Remedy, "never reset the only control-plane node") {
		t.Errorf("an empty authority: %v", err)
	}
}
