package wordings

import (
	"regexp"
	"strings"
)

// form is a stilted wording. except matches uses of the same words that are good English.
type form struct {
	form, except *regexp.Regexp
	advice       string
}

// forms contains the stilted wordings in all kinds of texts. Each consists of a pattern, the advice, and an optional
// exception. A space in a pattern matches any white space. Case is ignored.
var forms = compileForms([][]string{
	// Words that aren't the established terms.
	{`\b(least|greatest)\b`, `min, max, smallest, largest`, `\bat (the )?(very )?least\b|\bleast (privileges?|recently|significant)\b|\bgreatest common\b`},
	{`\b((samples|they|which|that|requests|series|writes) (are|were|is|was|aren't|weren't|isn't|wasn't) (not )?taken|takes? (no |in )?samples|refuses? samples)\b`, `accepts, accepted, rejected`},
	{`\b(answer(?:s|ed)? (?:with |by )?(?:an? )?[2345]\d\d|answered (?:with|by) ◌)`, `returns 400, is rejected with 400`},
	{`\b(over (?:an? |an? real |one |the |the same |several )?(?:Apache )?(?:Cassandra|Pebble|KairosDB))\b`, `on Cassandra, with Cassandra`},
	{`\b(anew)\b`, `again, recomputed, rebuilt`},
	{`\b(outdo|outdoes|outdone)\b`, `supersede, superseded`},
	{`\b(let(?:s|ting)? go(?: of)?)\b`, `release, evict`},
	{`\b(work(?:s|ed|ing)? off)\b`, `process, drain`},
	{`\b(heed(?:s|ed|ing)?)\b`, `apply, honor`},
	{`\b(?:is|are|was|were|be|been|isn't|aren't|'s) (gone)\b|\b(vanish(?:es|ed)?)\b`, `is deleted, is missing, expires`},
	{`\b((?:it|they|data|samples|rows|series|windows?|what|that|which) go(?:es)?)(?: next| away| first)?(?:[.,;:]|$)`, `is deleted, expires`},
	{`\b((?:what|which) (?:go(?:es)?|comes?) next)\b`, `next to expire`},
	{`\b(liv(?:es?|ed|ing) (?:for|as long|until|longer|shorter|beside|in memory)|series live|(?:short|long) li(?:fe|ves))\b`, `has a TTL of, is kept, short-lived`, `\btime to live for\b`},
	{`\b(horizons?)\b`, `retention boundary`},
	{`\b(believ(?:e|es|ed|ing)|doubt(?:s|ed)?)\b`, `trusted, untrusted`, `\bwe believe\b|\bin doubt\b|\bno doubt\b`},
	{`\b(seen time|time that \S+ \S+ has seen)\b`, `observed uptime`},
	{`\b(?:of|no|or|and|their|its) (marks)\b`, `commit records`},
	{`\b(tails)\b`, `stream positions`},
	{`\b((?:the|a|in) stage)\b`, `staging log`, `\bstage of\b|\bat (?:this|that|the) stage\b`},
	{`\b(beats?)\b`, `heartbeat`, `\bbeat ◌`},
	{`\b(?:is|are|was|were|been|be) (stated|told)\b`, `advertised, configured`, `\btold apart\b`},
	{`\b((?:a|the|another|other|of) places? (?:where|that|of|to which|in which))\b`, `location`, `\bin place of\b`},
	{`\b(lack(?:s|ed|ing)?)\b`, `missing, without`, `\black of\b`},
	{`\b(distance)\b`, `lag`, `\blarge distance\b`},
	{`\b((?:process|server|program|run|command|start|node|reader|query)(?:e?s)? (?:begins?|began|ends?|ended))\b`, `starts, stops`},
	{`\b((?:begins?|began|begun|starts?) (?:again )?(?:from the start|over again))\b`, `restarts`},
	{`\b(mend(?:s|ed|ing)?)\b`, `repair, fix`, `\bmend:`},
	{`\b(st(?:ands?|anding|ood) (?:in|on|beside|beneath|there|at|above|below|behind|next|before|after|as|around))\b`, `is in, is stored in`},
	{`\b(for ever)\b`, `forever, indefinitely`},
	{`\b((?:that|which|what|it|they|who|both) (?:is|are|was|were) about)\b|\b(about (?:which|whom|what))\b`, `applies to, covers`,
		`\babout (?:\d|half|a |an |to |the same|as |one|two|three|twice|equal)`},
	{`\b(likewise|besides|meanwhile)\b`, `also, in addition, concurrently`},
	{`\b(whoever|whatever)\b`, `name the noun: the caller, the process, any`},
	{`\b((?:process|server|sender|reader|client|replica|one|store|node|cassia|program)(?:e?s)? who|to who)\b`, `that`},
	{`\b(hidden and (?:then |later )?dropped)\b`, `expired, deleted`},
	{`\b((?:only|just) looks?|looks? (?:after|only))\b`, `is read-only, manages`},
	{`\b(the store(?:'s| has))\b`, `the store contains`, `\bthe store(?:'s \w| has (?:been|\w+ed)\b)`},
	{`\b(kept in mind|(?:is|are|be|was|were) remembered)\b`, `cached, stored`},
	{`\b(clocks?(?: [^\s.,:;]+){0,4}? (?:is|are|was|were|runs|goes)(?: [^\s.,:;]+){0,3}? (?:ahead|behind))\b`, `fast, slow`},
	{`\b(cut(?:s|ting)? (?:off|short))\b`, `interrupted, truncated`},

	// Pronouns and question words in place of nouns.
	{`\b(what (?:is|was|are|were|isn't|aren't|has|had|have|it|they|there|these|those|this|comes?|came|goes|waits?|takes?|took|takes|can|can't|could|must|may|others?|counts|runs?|lies|lay|stays|stood|stands|remains|belongs|leads|lets|makes?|makes|keeps?|holds?|said|says|reads?|needs?|never|no|only|one|lasts|each|all|every|a|an|someone|somebody|clients|Prometheus|Cassia|processes|tenants?|series))\b`,
		`name the noun`, `\bWhat (?:is|was|are|were|has|can|must|should|does|do|makes|a|an|it|takes|there)\b[^.;:|]*\?|\bwhat it means\b|\bwhat (?:is|are) (?:a|an|the)\b`},
	{`(?:[a-z,;] |^)(which (?:there are|there is|it is|they are|is which|are which))\b`, `name the noun`, `\b(?:for|in|to|at|of|on) which\b`},
	{`\b((?:that|those|these|all|some|none|each|both|any) of (?:which|whom|what)|that of|those of|of those(?: who| that| which| of| with| in|[.,;:])|of which|of whom|of what|of that,|that which)`, `repeat the noun; two sentences`},
	{`\b((?:everything|nothing|anything|something) of (?:it|them|that|what))\b`, `name the noun`},
	{`\b(how (?:far|many there are|it (?:is|was)|they (?:are|were)|it came|good it))\b`, `progress; name the noun`, `\bhow far (?:back|behind|ahead)\b`},
	{`\b((?:with|from|by|of|than|for|as|to|if|and) such|such (?:are|is|ones?|that are))\b`, `name the noun`, `\bsuch (?:as|an?)\b|\bas such\b`},
	{`\b(as (?:it|they) (?:is|are|was|were|came|come|stands?)|as (?:it|they) lies?|as they go)\b`, `unchanged, as received`, `\bas (?:it|they) (?:is|are|was|were) (?:\w+ed|not|no longer|being)\b`},
	{`\b((?:is|are|has|have|was|were|will|can) (?:so|likewise)(?:[.,;:]|$)|so (?:is|are|do|does|did|has|have|was|were) (?:it|they|the|its|their|a|an|each|all|those))\b`, `repeat the verb`},

	// Verbs that give code a will.
	{`\b(knows?|knew|tells?|hears?|heard|wants|says|said|forgets?|sees to|asks|asked|asking|trusts in)\b`, `reads, holds, returns, reports, detects, requests`,
		`\b(?:you|we|who|users?|people|one|Let's) (?:already |don't |may |can )?(?:be |explicitly )?(?:knows?|wants?|asks?|asked|hears?|heard)\b|\bnever asked\b|\bfrequently asked\b|` +
			`\b(?:asks?|asked|asking) (?:you|for (?:a|the|your|its) (?:password|token|user|login))\b|\bthat is to say\b|\btell (?:them|it|\w+) apart\b|\bgood to know\b`},
	{`\b(?:they|which|that|it|and|clients|queries|dashboards|rules|flags|names|processes|metrics|samples|alerts) ((?:ask|say|tell|want))\b`, `requests, reports`},
	{`\b((?:looks?|looking|looked) after)\b`, `manages`},

	// Word order and particles.
	{`(, too)\b`, `also`, `, too (?:many|much|few|little|large|small|long|short|old|new|high|low|big|far|late|early|often|fast|slow)\b`},
	{`[,;:] (for (?:it|they|there|none|nothing|what|he|each of|no |neither|nobody|whoever))\b`, `because`},
	{`[,;] (for) (?:the|a|an|its|their|some|this|these|those|that|each|every|all|both|only|most|many|more)(?: [\w'-]+){1,5}? (?:is|are|was|were|has|have|had|can|can't|may|would|must|isn't|aren't|don't|doesn't|didn't|needs?|takes?|holds?|belongs?)\b`,
		`because`, `\bone for\b`},
	{`\b(but for)\b`, `except`, `\bbut for (?:now|example|the time)\b`},
	{`\b(so (?:many|much|long as|few|little))\b`, `the number`},
	{`\b((?:as|for) long as (?:it|they|that) (?:takes?|lasts?|goes))\b`, `the bound; while`},
	{`\b(nor)\b`, `a sentence of its own`, `\bneither\b[^.;]*\bnor\b`},
	{`\b(seldom|lest|therein|thereof|wherein|whereby|whereupon|thrice|henceforth|dearer|forthwith|amongst|whilst)\b`, `a plain word`},
	{`\b(is dear|are dear|being dear|dear to)\b`, `expensive`},
	{`\b(in one go|by halves|without a word|on the way|the more so|other than before|of its own accord|and the other way around|the like|of the kind|as of old|to and fro)\b`, `a plain word`, `\bor the like\b`},
	{`\b((?:two|three|four|five|six|seven|eight|nine) (?:fifth|sixth|seventh|eighth|ninth|tenth|twentieth|hundredth)s|(?:a|one) (?:seventh|eighth|ninth|twentieth|thirtieth|fiftieth))\b`, `a percentage or a factor`},
	{`\b(nobody|everybody|somebody|anybody)\b`, `no user, every client; say what happens`},
	{`\b(needn't|mustn't|shan't|ought)\b`, `doesn't have to, must not`},

	// "a" instead of "per".
	{`\b((?:bytes|requests|CPU|seconds?|MB|KB|MiB|KiB|GiB|GB|samples|queries|rows|ms|µs|s|tables?|row|chunk|page|files?) an? (?:second|minute|hour|day|sample|series|million|thousand|hundred|request|window|query|tenant|process|core|node|slot|row|metric|replica|partition|file))\b`, `per`,
		`\btimes an? \w+\b`},

	// Negatives instead of effects, and unclear nouns.
	{`\b(none (?:may|must|can|runs?|waits?|is|are|has|have|does|do|were|was))\b`, `say what happens`, `\bnone are\b`},
	{`\b((?:in|into|of|one|this|each|every|another|the) (?:house|room)s?)\b|\b(ways? out)\b`, `package, removal path`},
	{`\b((?:data|samples|rows|bytes) leaves?)\b`, `is removed`},
})

// commentForms contains the stilted wordings that are counted only in comments.
var commentForms = compileForms([][]string{
	{`\b(l(?:ies?|ay) (?:in|on|at|behind|beside|there|where))\b`, `is in, is at`},
	{`\b((?:is|are|was|were) over)(?:[.,;:)]|$| and| or| but| when| once| before| after| until)`, `has ended`},
	{`\b(in the end)\b`, `finally; name the moment`},
	{`\b(hardly|somehow|somewhere else|asunder|apiece)\b`, `a plain word`},
	{`\b((?:of|from|to|with|for|in) how (?:much|many|far|long))\b`, `the number of, the size of, the duration of`},
	{`\b(how much (?:of|it|they|is|are|a|the))\b`, `the number of, the size of`},
	{`\b(g(?:ives?|ave|iven) (?:it |them |its? \S+ )?back)\b`, `returns, releases`},
	{`\b((?:is|are|was|were) of (?:how|what|those|which|one|all|its|their|a|an|some|several))\b`, `belongs to, applies to, holds`,
		`\b(?:is|are|was|were) of (?:its|their) own\b`},
	{`\b(from (?:when|what|which|whom|where|its \S+|then|there|one|\d+) on)\b`, `starting at, since, after`},
	{`\b(up to (?:which|what|when|where))\b`, `until, the limit`},
	{`\b(by (?:what|whom))\b`, `name the noun`},
	{`\b((?:the|a) (?:one|ones) (?:of which|that is|that are|which))\b`, `repeat the noun`},
	{`\b((?:is|are|was|were) (?:given|handed) to it)\b`, `name the noun`},
	{`\b((?:take|takes|took|taking|taken) (?:over |on )?the place of)\b`, `replaces`},
	{`\b((?:is|are|was|were|be) there|there is no(?:ne)? such)[.,;:]`, `exists, is present`},
	{`\b(comes? (?:of|to be))\b`, `results from, becomes`},
	{`\b(has (?:it|them|each|queries|processes|time|rows|a \S+|the \S+) (?:be|go|pass|wait|hear|run|read|write|let|seal|make|take))\b`, `makes ..., lets ...`},
})

// commentExceptions matches uses of the forms above that are good English in comments.
var commentExceptions = compilePattern(`\bleast squares\b|\b(?:left|leaves?|stays?|keeps?|kept|returned|returns|copied|unchanged|stored|written|passed|used|taken) as (?:it|they) (?:is|are|was|were)\b|` +
	`\b(?:users?|clients?|callers?|operators?|people) (?:who )?(?:asks?|asked|wants?|knows?)\b|\b(?:isn't|aren't|is|are) known\b|` +
	`\b(?:from|than|as|with|to|like|and|by|of|equals?|replaces?) (?:that|those) of\b|\bthe room\b|\b(?:query|read) (?:ends|ended)\b`)

func compileForms(list [][]string) []form {
	out := make([]form, len(list))
	for i, l := range list {
		out[i] = form{form: compilePattern(`(?:` + l[0] + `)`), advice: l[1]}
		if len(l) > 2 {
			out[i].except = compilePattern(l[2])
		}
	}
	return out
}

func compilePattern(s string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)` + strings.ReplaceAll(s, " ", `\s+`))
}
