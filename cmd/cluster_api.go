// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"os"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster/apiclient"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
)

// Environment variables for access to the REST API. The token may be in one, but never in an argument.
const (
	envAPI            = "OCADM_API"
	envAPIToken       = "OCADM_API_TOKEN"      //nolint:gosec // the name of a variable
	envAPITokenFile   = "OCADM_API_TOKEN_FILE" //nolint:gosec // the name of a variable
	envAPICAFile      = "OCADM_API_CA_FILE"
	envAPIFingerprint = "OCADM_API_FINGERPRINT"
)

type apiFlags struct {
	url, tokenFile, caFile, fingerprint string
}

func (f *apiFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.url, "api", "", "URL of the REST API, instead of a kubeconfig (default $"+envAPI+")")
	for name, flag := range map[string]struct {
		to    *string
		usage string
	}{
		"api-token-file":  {&f.tokenFile, "file with the token for the REST API (default $" + envAPITokenFile + ", or the token in $" + envAPIToken + ")"},
		"api-ca-file":     {&f.caFile, "file with CA certificates of the REST API (default $" + envAPICAFile + ", or the system's)"},
		"api-fingerprint": {&f.fingerprint, "SHA-256 of the certificate of the REST API, instead of a CA (default $" + envAPIFingerprint + ")"},
	} {
		fs.StringVar(flag.to, name, "", flag.usage)
		mark(fs, name, annotationAdvanced)
	}
}

// overAPI reports whether a command uses the REST API. A kubeconfig in a flag or setting takes precedence over the environment.
func (f *cloudFlags) overAPI() (bool, error) {
	if f.api.url != "" && f.kubeconfig != "" {
		return false, misused("--api and --kubeconfig, or OCADM_KUBECONFIG, are both given", "give one of them")
	}
	if f.api.url == "" && f.kubeconfig == "" {
		f.api.url = os.Getenv(envAPI)
	}
	return f.api.url != "", nil
}

// file returns the kubeconfig for a command that cannot use the REST API; what explains why it cannot.
func (f *cloudFlags) file(what string) (string, error) {
	over, err := f.overAPI()
	if err != nil {
		return "", err
	}
	if over {
		return "", finding.New("OCA-7632", "The REST API does not serve this command", "it "+what, "run it with a kubeconfig: leave out --api and unset "+envAPI)
	}
	return kube.Kubeconfig(f.kubeconfig, os.Getenv)
}

func (f *apiFlags) open(getenv func(string) string) (client.WithWatch, error) {
	o := apiclient.Options{URL: f.url, Token: getenv(envAPIToken), Fingerprint: f.fingerprint}
	ca := f.caFile
	if ca == "" && o.Fingerprint == "" { // flags replace both variables
		ca, o.Fingerprint = getenv(envAPICAFile), getenv(envAPIFingerprint)
	}
	for _, file := range []struct {
		name string
		to   func([]byte)
	}{
		{cmp.Or(f.tokenFile, getenv(envAPITokenFile)), func(text []byte) { o.Token = string(text) }},
		{ca, func(text []byte) { o.CA = text }},
	} {
		if file.name == "" {
			continue
		}
		text, err := os.ReadFile(file.name)
		if err != nil {
			return nil, finding.Errorf("OCA-7630", "The REST API cannot be used", "check --api-token-file and --api-ca-file", "%w", err)
		}
		file.to(text)
	}
	return apiclient.New(o)
}
