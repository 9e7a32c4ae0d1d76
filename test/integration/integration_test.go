// SPDX-License-Identifier: Apache-2.0

// Package integration runs the operator against a real etcd, kube-apiserver and MariaDB. Each test creates its own cloud. In most tests package
// instant plays the services. Tests that need real starts, crashes or files run them as programs (package pods).
package integration

import (
	"testing"

	"yunion.io/x/ocadm/test/env"
)

const (
	namespace = env.Namespace
	cloud     = env.Name
)

func TestMain(m *testing.M) { env.Main(m) }

// cloudTest is a test of one cloud: an environment with additions for this package.
type cloudTest struct {
	*env.Env
	// fileAnnotations are the annotations in the applied files, from the time when the file was saved.
	fileAnnotations map[string]string
}

func newCloudTest(t *testing.T, o env.Options) *cloudTest {
	t.Helper()
	o.Collect = true // one control plane serves nearly all tests
	return &cloudTest{Env: env.New(t, o)}
}

// installed returns a test with a Ready cloud and an idle operator. Without components it is a complete cloud.
func installed(t *testing.T, o env.Options, components ...string) *cloudTest {
	t.Helper()
	e := newCloudTest(t, o)
	cr := e.Minimal()
	if len(components) > 0 {
		cr = e.Only(components...)
	}
	e.Install(cr)
	e.Rest()
	return e
}

// in returns the test for a part of it.
func (e *cloudTest) in(t *testing.T) *cloudTest { return &cloudTest{e.In(t), e.fileAnnotations} }
