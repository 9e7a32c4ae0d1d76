// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"slices"
	"strings"
)

// climc plays the container: its entry point asks region for an SSH key with the account from OS_* in the environment, ends if it gets no answer, and
// then keeps running.
func climc(ctx context.Context, m Machine, args []string) error {
	if !slices.Equal(args, []string{"sleep"}) {
		return fmt.Errorf("climc: the only command is sleep, not %q", args)
	}
	session := New(Credentials{
		AuthURL: strings.TrimSuffix(m.getenv("OS_AUTH_URL"), "/"), User: m.getenv("OS_USERNAME"), Password: m.getenv("OS_PASSWORD"),
		Domain: "Default", Project: m.getenv("OS_PROJECT_NAME"), Insecure: m.getenv("YUNION_INSECURE") == "true", Dial: m.Dial,
	})
	token, err := session.Login(ctx)
	if err != nil {
		return fmt.Errorf("climc: %w", err)
	}
	target, found := token.Endpoint("compute_v2", "internal", m.getenv("OS_REGION_NAME"))
	if !found {
		return fmt.Errorf("climc: no endpoint of compute_v2 in region %q", m.getenv("OS_REGION_NAME"))
	}
	if err := session.Call(ctx, http.MethodGet, target+"/zones", nil, nil); err != nil {
		return fmt.Errorf("climc: %w", err)
	}
	log.Print("climc is up")
	m.isUp(ctx)
	<-ctx.Done()
	return nil
}
