// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Rules is the table.
var Rules = sync.OnceValue(func() []Rule { return slices.Concat(database(), clickHouse(), whole(), changes(), blocks()) })

const (
	// withPort is an address with a port at its end; one of IPv6 has more colons.
	withPort = `^[^:]*:[0-9]*$`
	lineEnd  = `[\r\n]`
	// cron is five fields, or a word for them.
	cron     = `^(@(annually|yearly|monthly|weekly|daily|midnight|hourly)|@every [0-9a-z.]+|[0-9*,/?LW#a-zA-Z-]+( +[0-9*,/?LW#a-zA-Z-]+){4})?$`
	dnsName  = `^([a-zA-Z0-9_]([a-zA-Z0-9_-]*[a-zA-Z0-9])?([.][a-zA-Z0-9_]([a-zA-Z0-9_-]*[a-zA-Z0-9])?)*[.]?)?$`
	altName  = `^([*][.])?[a-zA-Z0-9]([a-zA-Z0-9.:_-]*[a-zA-Z0-9])?$|^[0-9a-fA-F:.]+$`
	hostList = `^[A-Za-z0-9.:,_-]*$`
	qemu     = `^([0-9]+[.][0-9]+[.][0-9]+)?$`
	// directory below the root, without "..".
	directory = `^(/+[^/.][^/]*|/+[.][^/.][^/]*)*/*$`
	newName   = `^[a-z][a-z0-9-]{0,61}$`
	name      = `^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	origin    = `^[^\s,]+$`
)

// text is a rule about a string: it matches an expression, or does not if not is set.
func text(field, expression string, not bool, message string) Rule {
	cel := "self." + field + ".matches(" + quote(expression) + ")"
	if not {
		cel = "!" + cel
	}
	if regexp.MustCompile(expression).MatchString("") == not { // it has to be there
		cel = has(field) + " && " + cel
	} else {
		cel = absent(field) + " || " + cel
	}
	return Rule{Field: field, CEL: cel, Message: message}
}

// each is a rule about every string of a list.
func each(field, expression, message string) Rule {
	return Rule{Field: field, CEL: absent(field) + " || self." + field + ".all(x, x.matches(" + quote(expression) + "))", Message: message}
}

// fixed is a rule about a text that does not change once it is there.
func fixed(field, message string) Rule {
	before := strings.ReplaceAll(absent(field), "self.", "oldSelf.")
	return Rule{Field: field, CEL: fmt.Sprintf("%s || oldSelf.%[2]s == '' || %s && self.%[2]s == oldSelf.%[2]s", before, field, has(field)), Message: message}
}

// optional writes a path in CEL whose parts may be absent. The API server then knows no limit of a text's length: it is for what is
// compared with constants, and for numbers.
func optional(field, otherwise string) string {
	return "self.?" + strings.ReplaceAll(field, ".", ".?") + ".orValue(" + otherwise + ")"
}

// has asks for every part of a path, absent for the lack of one.
func has(field string) string { return "has(" + strings.Join(steps(field), ") && has(") + ")" }

func absent(field string) string { return "!has(" + strings.Join(steps(field), ") || !has(") + ")" }

func steps(field string) []string {
	parts := strings.Split(field, ".")
	var out []string
	for i := range parts {
		out = append(out, "self."+strings.Join(parts[:i+1], "."))
	}
	return out
}

func quote(s string) string { return "r'" + s + "'" }

func database() []Rule {
	return []Rule{
		text("mysql.host", `^$`, true, "name the database server"),
		text("mysql.host", withPort, true, "give the port in mysql.port"),
		{
			Field: "mysql.password", CEL: optional("mysql.password", "''") + " != '' || " + optional("mysql.passwordSecretRef.name", "''") + " != ''",
			Message: "give password, or passwordSecretRef",
		},
		{
			Field: "mysql.password", CEL: optional("mysql.password", "''") + " == '' || " + optional("mysql.passwordSecretRef.name", "''") + " == ''",
			Message: "give either password or passwordSecretRef: with both, a change of one would have no effect",
		},
		text("mysql.password", lineEnd, true, "it has a line break in it: take that out"),
		text("mysql.passwordSecretRef.name", `^$|`+name, false, "it is the name of a Secret beside the cloud: lower-case letters, digits, '-' and '.'"),
		text("db_engine", `^(mysql)?$`, false, "only mysql is supported: move the data to MySQL or MariaDB and leave db_engine out"),
	}
}

// clickHouse is about the server that a cloud may have besides.
func clickHouse() []Rule {
	const message = "%s cannot change while services keep records there: let the old address lead to the new server, or take host out first and let the " +
		"services go on without; what was recorded stays on the old server"
	server := "self.?clickhouse.?host.orValue('') == '' || oldSelf.?clickhouse.?host.orValue('') == ''"
	return []Rule{
		text("clickhouse.host", withPort, true, "give the port in clickhouse.port"),
		{
			Field: "clickhouse.password", CEL: optional("clickhouse.password", "''") + " == '' || " + optional("clickhouse.passwordSecretRef.name", "''") + " == ''",
			Message: "give either password or passwordSecretRef: with both, a change of one would have no effect",
		},
		text("clickhouse.password", lineEnd, true, "it has a line break in it: take that out"),
		text("clickhouse.passwordSecretRef.name", `^$|`+name, false, "it is the name of a Secret beside the cloud: lower-case letters, digits, '-' and '.'"),
		{
			Field: "clickhouse.host", CEL: server + " || self.clickhouse.host == oldSelf.clickhouse.host", Message: fmt.Sprintf(message, "clickhouse.host"),
		},
		{
			Field: "clickhouse.port",
			CEL: server + " || (self.clickhouse.?port.orValue(0) == 0 ? 9000 : self.clickhouse.port) == " +
				"(oldSelf.clickhouse.?port.orValue(0) == 0 ? 9000 : oldSelf.clickhouse.port)",
			Message: fmt.Sprintf(message, "clickhouse.port"),
		},
	}
}

func whole() []Rule {
	return []Rule{
		text("imageRepository", `://`, true, "leave the scheme out: registry.example.com/path"),
		text("imageRepository", `@|/[^/]*:[^/]*$`, true, "leave the tag out: it is spec.version"),
		text("productVersion", `^(FullStack|CMP|Edge|LightEdge|AI)?$`, false, "productVersion is one of FullStack, CMP, Edge, LightEdge, AI"),
		text("loadBalancerEndpoint", withPort, true, "give an address or a name without a port: each service has its own"),
		each("customZones", `^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`, "a zone's name begins with a letter or digit and has letters, digits, '-', '_' and '.'"),
		{
			Field: "customZones", CEL: absent("customZones") + " || self.customZones.all(x, self.customZones.exists_one(y, x == y))",
			Message: "name each zone once",
		},
		each("certSANs", altName, "each entry is an IP address or a DNS name"),
		{
			Field: "components", CEL: absent("components") + " || self.components.all(k, k.matches(" + quote(newName) + "))",
			Message: "a component's name has lower-case letters, digits and '-', and begins with a letter",
		},
		{
			Field: "components", CEL: absent("components") + " || self.components.all(k, !(k in " + quoteList(blockKeys()) + "))",
			Message: "this component has a block of its own: write spec.<name> instead of spec.components.<name>",
		},
	}
}

func changes() []Rule {
	return []Rule{
		fixed("region", "region cannot change: every service has recorded it; make another cloud for another region"),
		fixed("zone", "zone cannot change: hosts have recorded it; add zones in customZones"),
		fixed("mysql.host", "mysql.host cannot change while the cloud lives: let the old name lead to the new server, "+
			"or delete the cloud with deletionPolicy Retain and create it again"),
		{
			Field: "mysql.port",
			CEL:   "(self.?mysql.?port.orValue(0) == 0 ? 3306 : self.mysql.port) == (oldSelf.?mysql.?port.orValue(0) == 0 ? 3306 : oldSelf.mysql.port)",
			Message: "mysql.port cannot change while the cloud lives: let the old port lead to the new server, " +
				"or delete the cloud with deletionPolicy Retain and create it again",
		},
		{
			Field: "etcd.size",
			CEL: "oldSelf.?etcd.?disable.orValue(false) == true || self.?etcd.?disable.orValue(false) == true || oldSelf.?etcd.?size.orValue(0) == 0 || " +
				"self.?etcd.?size.orValue(0) == 0 || self.etcd.size == oldSelf.etcd.size",
			Message: "etcd.size cannot change while etcd runs: its members learn of each other at their first start; set etcd.disable, delete the claims " +
				"of etcd (they hold leases and caches only), and set disable and size again",
		},
	}
}

func blocks() []Rule {
	return []Rule{
		{
			Field: "etcd.size", CEL: "self.?etcd.?size.orValue(0) == 0 || self.etcd.size % 2 != 0",
			Message: "an even number of members survives no more failures than one less: give 1, 3 or 5",
		},
		{
			Field: "etcd.etcdBackendQuotaSize", CEL: "self.?etcd.?etcdBackendQuotaSize.orValue(0) <= 8192",
			Message: "it is in MB, and etcd does not work well with more than 8192",
		},
		text("keystone.bootstrapPassword", lineEnd, true, "it has a line break in it: take that out"),
		text("regionServer.dnsServer", hostList, false, "give addresses, with commas between them"),
		text("regionServer.dnsDomain", dnsName, false, "it is a DNS name: cloud.example.com"),
		{
			Field:   "regionDNS.proxies",
			CEL:     absent("regionDNS.proxies") + " || self.regionDNS.proxies.all(p, has(p.from) && p.from.matches(" + quote(`^[^\s]+$`) + ") && has(p.to) && size(p.to) > 0)",
			Message: "each entry has a domain in from, and at least one address in to",
		},
		text("hostagent.defaultQemuVersion", qemu, false, "it is a version of three numbers: 10.0.7"),
		text("telegraf.telegrafConfigDir", directory, false, "it is a directory of the node: /etc/telegraf"),
		each("apiGateway.corsHosts", origin, "each entry is one host, without spaces or commas"),
		text("backup.schedule", cron, false, "give minute, hour, day, month and weekday: 0 2 * * *"),
		{
			Field: "keystone.publicService.nodePort", CEL: portsRule(), Message: "two services are to have the same port: give each its own",
		},
	}
}

func quoteList(list []string) string { return "['" + strings.Join(list, "','") + "']" }
