// Package bounds rejects regular expressions that match slowly, and texts that would take much more memory than their
// length: regular expressions with repetitions, which are expanded when they are compiled, and YAML with aliases, which
// are expanded when it is decoded.
//
//	(abc…){1000}                     ─► CheckRegexps
//	{a: &a [x, x], b: &b [*a, *a]}   ─► DecodeYAML, EachScalar
//
// All packages that compile regular expressions or decode YAML of users call these checks first. ReadFile reads
// configuration files. Map is a cache of limited size.
package bounds
