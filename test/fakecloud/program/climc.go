// SPDX-License-Identifier: Apache-2.0

package program

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"

	"yunion.io/x/ocadm/test/fakecloud/rest"
)

// climc implements a few commands of the real one, with the account from OS_* in the environment, and "sleep", which keeps running as the container
// does. The real entry point first asks region for an SSH key and ends if it gets no answer.
func climc(ctx context.Context, m Machine, args []string) error {
	if len(args) == 0 {
		args = []string{"help"}
	}
	switch args[0] {
	case "sleep":
		if err := climcCommand(ctx, m, "zone-list"); err != nil {
			return err
		}
		log.Print("climc is up")
		m.isUp(ctx)
		<-ctx.Done()
		return nil
	case "endpoint-list", "zone-list":
		return climcCommand(ctx, m, args[0])
	}
	return fmt.Errorf("climc: commands are endpoint-list, zone-list, sleep")
}

func climcCommand(ctx context.Context, m Machine, command string) error {
	session, err := m.climcSession()
	if err != nil {
		return err
	}
	token, err := session.Login(ctx)
	if err != nil {
		return fmt.Errorf("climc: %w", err)
	}
	target, path := strings.TrimSuffix(m.getenv("OS_AUTH_URL"), "/"), "/endpoints"
	if command == "zone-list" {
		var found bool
		kind := cmp.Or(strings.TrimSuffix(m.getenv("OS_ENDPOINT_TYPE"), "URL"), "internal") // from publicURL or internalURL
		if target, found = token.Endpoint("compute_v2", kind, m.getenv("OS_REGION_NAME")); !found {
			return fmt.Errorf("climc: no endpoint of compute_v2 in region %q", m.getenv("OS_REGION_NAME"))
		}
		path = "/zones"
	}
	var answer json.RawMessage
	if err := session.Call(ctx, http.MethodGet, target+path, nil, &answer); err != nil {
		return fmt.Errorf("climc: %w", err)
	}
	log.Printf("%s", answer)
	return nil
}

func (m Machine) climcSession() (*Client, error) {
	for _, name := range []string{"OS_AUTH_URL", "OS_USERNAME", "OS_PASSWORD"} {
		if m.getenv(name) == "" {
			return nil, fmt.Errorf("climc: missing %s", name)
		}
	}
	authorities := m.getenv("YUNION_CACERT")
	if authorities == "" {
		if _, err := os.Stat(m.path("/etc/yunion/pki/ca.crt")); err == nil {
			authorities = "/etc/yunion/pki/ca.crt"
		}
	}
	roots, err := rest.Authorities(m.path(authorities))
	if err != nil {
		return nil, err
	}
	return New(Credentials{
		AuthURL: strings.TrimSuffix(m.getenv("OS_AUTH_URL"), "/"), User: m.getenv("OS_USERNAME"), Password: m.getenv("OS_PASSWORD"),
		Domain: cmp.Or(m.getenv("OS_DOMAIN_NAME"), "Default"), Project: cmp.Or(m.getenv("OS_PROJECT_NAME"), "system"),
		Authorities: roots, Insecure: m.getenv("YUNION_INSECURE") == "true", Dial: m.Dial,
	}), nil
}
