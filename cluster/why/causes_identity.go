// SPDX-License-Identifier: Apache-2.0

package why

import "regexp"

func identityCauses() []Cause {
	return []Cause{
		{ID: "identity-password", Code: "OCA-7520", Layer: Identity, On: string(identity), Title: "The identity service refuses the administrator",
			Why:  "the password of sysadmin was changed in the console",
			Next: "write the new password into the Secret: docs/first-steps.md, Change the administrator's password",
			Says: regexp.MustCompile(`logging in as "sysadmin".*\b401\b|\b401\b.*sysadmin`), In: Message},
		{ID: "identity-policy", Code: "OCA-7521", Layer: Identity, On: string(identity), Title: "The identity service forbids everything",
			Why:  "its policies are not in effect yet, or sysadmin's policy was removed",
			Next: "wait a minute; then ocadm component exec climc -- climc policy-list",
			Says: regexp.MustCompile(`to see its policy|\b403\b.*(not enough privilege|ForbiddenError)`), In: Message},
		{ID: "identity-unreachable", Code: "OCA-7522", Layer: Identity, On: string(identity), Title: "The identity service does not answer",
			Why:  "keystone does not run, or its address points elsewhere",
			Next: "ocadm why keystone; ocadm component logs keystone",
			Says: regexp.MustCompile(`connection refused|i/o timeout|no route to host|deadline exceeded|\b50[0-9]\b|EOF`), In: Message,
			Of: func(f *facts, t Text) bool { return identityEffect(f, t) && !f.toDatabase(t.Line) }},
		{ID: "account-password", Code: "OCA-7523", Layer: Identity, Title: "The identity service refuses a service's account",
			What: "The identity service refuses the account of ${component}", Why: "the account's password was changed, or the account was deleted; the audit restores it",
			Next: "ocadm component restart ${component}, after a quarter of an hour",
			Says: regexp.MustCompile(`WrongPassword|UserNotFound|IncorrectUsernameOrPassword|401.*(Unauthorized|password)`), In: LogLine,
			Of: func(_ *facts, t Text) bool { return ofService(t) }},
		{ID: "catalog-region", Code: "OCA-7524", Layer: Identity, Title: "A service finds no endpoint in its region", What: "${component} finds no endpoint in its region",
			Why:  "its option region, or the catalogue, names another region",
			Next: "ocadm component options list ${component}; compare region with spec.region",
			Says: regexp.MustCompile(`No valid .*endpoints? for .* in region|no such region`), In: LogLine},
		{ID: "identity-certificate", Code: "OCA-7525", Layer: Identity, On: string(identity), Title: "The certificate of the identity service is not accepted",
			Why:  "the pods do not use the certificates in the cloud's Secret",
			Next: "ocadm component restart keystone", Says: regexp.MustCompile(`x509: `), In: Message, Of: identityEffect},
	}
}

var identityKinds = regexp.MustCompile(`(^|[\s;])(account|endpoints|login|identity)/|logging in as`)

func identityEffect(f *facts, t Text) bool {
	return t.In == Message && identityKinds.MatchString(t.Line) && !ofEffect("database/")(f, t) && !ofEffect("clickhouse/")(f, t)
}
