// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"

	"yunion.io/x/ocadm/test/fakecloud/rest"
)

// climc has a few commands of the real one, with the account of OS_* in the environment, and "sleep", which stays up as the
// container does. The real entry point first asks region for an SSH key, and ends without an answer.
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
		<-ctx.Done()
		return nil
	case "token", "endpoint-list", "service-list", "zone-list", "image-list", "action-show":
		return climcCommand(ctx, m, args[0])
	}
	return fmt.Errorf("climc: commands are token, endpoint-list, service-list, zone-list, image-list, action-show, sleep")
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
	if command == "token" {
		fmt.Println(token.ID)
		return nil
	}
	lists := map[string]struct {
		serviceType, path, key string
		columns                []string
	}{
		"endpoint-list": {"identity", "/endpoints", "endpoints", []string{"service_type", "interface", "region_id", "enabled", "url"}},
		"service-list":  {"identity", "/services", "services", []string{"id", "name", "type", "enabled"}},
		"zone-list":     {"compute_v2", "/zones", "zones", []string{"id", "name", "status"}},
		"image-list":    {"image", "/images", "images", []string{"id", "name", "status"}},
		"action-show":   {"log", "/actions", "actions", []string{"id", "name", "created_at"}},
	}
	list := lists[command]
	target := strings.TrimSuffix(m.getenv("OS_AUTH_URL"), "/")
	if list.serviceType != "identity" {
		endpoint, found := token.Endpoint(list.serviceType, m.endpointType(), m.getenv("OS_REGION_NAME"))
		if !found {
			return fmt.Errorf("climc: no endpoint of %s in region %q", list.serviceType, m.getenv("OS_REGION_NAME"))
		}
		target = endpoint
	}
	var answer map[string]any
	if err := session.Call(ctx, http.MethodGet, target+list.path, nil, &answer); err != nil {
		return fmt.Errorf("climc: %w", err)
	}
	return printTable(answer[list.key], list.columns)
}

func printTable(rows any, columns []string) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(out, strings.ToUpper(strings.Join(columns, "\t")))
	items, _ := rows.([]any)
	for _, item := range items {
		record, _ := item.(map[string]any)
		var cells []string
		for _, column := range columns {
			cells = append(cells, rest.Record(record).Text(column))
		}
		fmt.Fprintln(out, strings.Join(cells, "\t"))
	}
	return out.Flush()
}

// endpointType turns publicURL and internalURL into the names of interfaces.
func (m Machine) endpointType() string {
	if kind := strings.TrimSuffix(m.getenv("OS_ENDPOINT_TYPE"), "URL"); kind != "" {
		return kind
	}
	return "internal"
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
	domain, project := m.getenv("OS_DOMAIN_NAME"), m.getenv("OS_PROJECT_NAME")
	if domain == "" {
		domain = "Default"
	}
	if project == "" {
		project = "system"
	}
	return New(Credentials{
		AuthURL: strings.TrimSuffix(m.getenv("OS_AUTH_URL"), "/"), User: m.getenv("OS_USERNAME"), Password: m.getenv("OS_PASSWORD"),
		Domain: domain, Project: project, Region: m.getenv("OS_REGION_NAME"),
		Authorities: roots, Insecure: m.getenv("YUNION_INSECURE") == "true", Dial: m.Dial,
	}), nil
}
