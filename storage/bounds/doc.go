// Package bounds refuses regular expressions that match slowly, and texts that would take much more memory than their length: regular expressions
// with repetitions, which are written out when they are compiled, and YAML with aliases, which are written out when they are decoded.
//
//	(abc…){1000}                     ─► CheckRegexps
//	{a: &a [x, x], b: &b [*a, *a]}   ─► CheckYAML, EachScalar
//
// Both are asked before a library compiles or decodes the text. ReadFile reads the texts of configuration files. Map bounds caches.
package bounds
