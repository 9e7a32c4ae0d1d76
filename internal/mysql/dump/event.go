// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"regexp"
	"strings"

	"yunion.io/x/ocadm/internal/mysql"
)

// copies begins the names of all databases that hold a copy of another one for a while.
const copies = mysql.OwnersDatabase + "_"

// eventState is the head of an event up to its state, as SHOW CREATE EVENT writes it.
var eventState = regexp.MustCompile("^(?s)(CREATE (?:DEFINER=.*? )?EVENT `(?:[^`]|``)*` ON SCHEDULE [^`]*? ON COMPLETION (?:NOT )?PRESERVE )" +
	`(ENABLE|DISABLE ON (?:SLAVE|REPLICA)|DISABLE)\b`)

// asleep is the state of an event in a copy that is enabled in the original. The server that made it does not run it.
const asleep = "DISABLE ON SLAVE"

// placed is an event for the database that it goes into. In a copy no event may run: its body may name the original. Where the copy takes the place of the
// original, what was enabled there is enabled again. It is pure.
func placed(event []byte, from, into string) []byte {
	m := eventState.FindSubmatchIndex(event)
	was, is := strings.HasPrefix(from, copies), strings.HasPrefix(into, copies)
	if m == nil || was == is {
		return event
	}
	state := string(event[m[4]:m[5]])
	switch {
	case is && state == "ENABLE":
		state = asleep
	case is:
		state = "DISABLE"
	case state != "DISABLE":
		state = "ENABLE"
	}
	return append(append(append([]byte{}, event[:m[4]]...), state...), event[m[5]:]...)
}
