package e2e

// deviation is an intended difference between the responses of Cassia and of Prometheus.
type deviation struct {
	// calls is a regular expression for the affected lines of the table, and differs one for the accepted differences.
	calls, differs string
	why            string
}

// momentary contains calls with deviations that don't occur in every run. The number of chunks in a head, for example,
// depends on the position of the samples in windows and chunk ranges, and is sometimes equal in both servers.
var momentary = []string{`timeout=(0|0\.000000001)$`, `GET /api/v1/status/tsdb\?limit=10000$`}

var deviations = []deviation{
	{`/query\?query=requests_total %2B on\(\) requests_total`, `^body: .*found duplicate series`,
		"which two of many series the text names follows the order of series, which nothing promises"},
	{`(query|series)\?.*limit=2$`, `^body: .*truncated`,
		"which series a limit leaves follows their order, which nothing promises: Prometheus' is that in which they came"},
	{`/label/__name__/values\?limit=3`, `^body`,
		"a limit leaves the first values in the order of the alphabet; Prometheus takes any"},
	{`timeout=(0|0\.000000001)$`, `^(code|body): .*(503|timed out)`,
		"a query whose time is over is answered with 503 and timeout; Prometheus answers 400 or 422 where that happened in the queue"},
	{`stats=all$`, `^body: .*parts`,
		"stats=all tells the resolution of each part of a query, too"},
	{`stats=x$`, `(?s)^body: .*not .*warnings`,
		"Prometheus warns that it will refuse unknown values of stats one day, but not those who add to the statistics"},
	{`/v1/(query/\?|Query\?|label/job/)`, `^(header Location|body).*"/(api/v1/)?|href`,
		"Prometheus redirects to a path without /api/v1, where nothing is"},
	{`/labels\?start=\{to\}&end=\{from\}`, `^body: {"data":\[\]`,
		"there is nothing in a range that ends before it begins; Prometheus' head doesn't look at the range"},
	{`/metadata( ;.*|\?limit=(-1|5000))?$`, `^body: .*Requests`,
		"metadata come by remote write, and are kept; Prometheus knows those of its targets only, and has none here"},
	{`/status/buildinfo`, `^body: .*cassiaVersion`,
		"it says that this is Cassia, and which; the version is that of the Prometheus whose API this is"},
	{`/status/flags`, `^body`, "Cassia has flags of its own"},
	{`GET /api/v1/status/tsdb\?limit=10000$`, `(?s)^body: .*chunkCount`,
		"a series has other chunks in the head than Prometheus cuts"},
	{`/federate\?match\[\]=\{__name__=~".%2B"\}$`, `(?s)^body: .*custom_bucket`,
		"where several float histograms are federated, Prometheus gives all of them the buckets of one"},
	{`<- (x|match\[\])=%zz$`, `^(code: 400|header Vary|body: .*reading the body)`,
		"a form that can't be read is refused before anything else; Prometheus goes by what it could read of it, but for series"},
	{`/features`, `^body`, "Prometheus tells the features of scraping, rules and more, which aren't here"},
	{`/status/self_metrics`, `^body`, "Cassia has metrics of its own"},
	{`/admin/tsdb/snapshot`, `^(code|body): .*(200|"name")`,
		"the admin API is on here, and off in this Prometheus, which answers 500 to what it doesn't allow"},
	{`/search/`, `^(code|body): .*(501|not supported: Prometheus' search API)`,
		"the experimental search API is missing; 501 says so better than 500, which clients try again"},
}
