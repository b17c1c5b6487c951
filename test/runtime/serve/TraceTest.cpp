// The header of a client's trace, by the cases of the standard, and spans.
#include "runtime/serve/telemetry/TraceExporter.h"

#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

namespace tessera::serve {
namespace {

// The example of W3C Trace Context, section 3.2.2.
constexpr const char *kExample =
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceParent, IsReadAsTheStandardSays) {
  auto read = parseTraceParent(kExample);
  ASSERT_TRUE(read);
  EXPECT_EQ(hex(read->trace), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(hex(read->parent), "00f067aa0ba902b7");
  EXPECT_TRUE(read->isSampled);
  auto with = [](std::size_t at, std::string_view part) {
    std::string header = kExample;
    return parseTraceParent(header.replace(at, part.size(), part));
  };
  EXPECT_FALSE(with(53, "00")->isSampled);
  EXPECT_TRUE(with(53, "ff")->isSampled); // other bits may be set
  EXPECT_TRUE(with(0, "cc"));
  EXPECT_FALSE(with(0, "ff"));
  EXPECT_FALSE(with(3, std::string(32, '0')));
  EXPECT_FALSE(with(36, std::string(16, '0')));
  EXPECT_FALSE(with(3, "4BF9"));
  EXPECT_FALSE(with(2, "_"));
  EXPECT_FALSE(with(53, "0g"));
  EXPECT_FALSE(parseTraceParent(std::string(kExample) + "-00"));
  EXPECT_TRUE(parseTraceParent("cc" + std::string(kExample).substr(2) + "-x"));
  EXPECT_FALSE(parseTraceParent("cc" + std::string(kExample).substr(2) + "x"));
  for (std::size_t length = 0; length < 55; ++length)
    EXPECT_FALSE(parseTraceParent(std::string(kExample).substr(0, length)));
}

uint64_t count() {
  static uint64_t next = 0;
  return next++; // the first cannot be an id
}

TEST(RequestTrace, HasASpanOfEachPart) {
  const auto now = std::chrono::steady_clock::now();
  auto after = [&](int ms) { return now + std::chrono::milliseconds(ms); };
  RequestTrace request;
  request.context = parseTraceParent(kExample);
  request.operation = "chat";
  request.model = "m";
  request.status = 504;
  request.error = "the request timed out";
  request.arrived = now, request.ended = after(90);
  request.generated.emplace().choices = {
      {now, after(80), after(10), after(30), "stop"},
      {now, after(90), after(20), std::nullopt, "deadline"},
      {now, after(90), std::nullopt, std::nullopt, "deadline"}};
  nlohmann::json spans = nlohmann::json::array();
  addSpans(request, count, spans);
  ASSERT_EQ(spans.size(), 7U);
  EXPECT_EQ(spans[0]["name"], "chat m");
  EXPECT_EQ(spans[0]["parentSpanId"], "00f067aa0ba902b7");
  EXPECT_EQ(spans[0]["status"]["message"], "the request timed out");
  const char *names[] = {"queue", "prefill", "decode",
                         "queue", "prefill", "queue"};
  auto time = [](const nlohmann::json &span, const char *which) {
    return std::stoll(span[which].get<std::string>());
  };
  for (std::size_t i = 1; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i]["name"], names[i - 1]);
    EXPECT_EQ(spans[i]["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
    EXPECT_EQ(spans[i]["parentSpanId"], spans[0]["spanId"]);
    EXPECT_NE(spans[i]["spanId"], spans[i - 1]["spanId"]);
    EXPECT_LE(time(spans[i], "startTimeUnixNano"),
              time(spans[i], "endTimeUnixNano"));
  }
}

TEST(Collector, HasTheUsualPath) {
  EXPECT_EQ(parseCollectorUrl("http://h:4318")->path, "/v1/traces");
  EXPECT_EQ(parseCollectorUrl("http://h:4318/a/v1/traces")->path,
            "/a/v1/traces");
  EXPECT_EQ(parseCollectorUrl("http://h/otel/v1")->path, "/otel/v1");
  EXPECT_EQ(parseCollectorUrl("http://h/")->port, "4318");
  EXPECT_EQ(parseCollectorUrl("http://[::1]")->port, "4318");
  EXPECT_EQ(parseCollectorUrl("http://[::1]")->host, "::1");
  EXPECT_EQ(parseCollectorUrl("http://h:80/x")->port, "80");
  EXPECT_EQ(parseCollectorUrl("https://h:4318").message(),
            "traces are sent over HTTP, to http://HOST:PORT/v1/traces, got: "
            "'https://h:4318'");
}

} // namespace
} // namespace tessera::serve
