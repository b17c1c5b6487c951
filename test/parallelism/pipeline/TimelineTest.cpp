#include <nlohmann/json.hpp>

#include "parallelism/pipeline/Timeline.h"
#include "test/parallelism/pipeline/Cases.h"

namespace tessera::pipeline {
namespace {

size_t count(std::string_view text, std::string_view what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string_view::npos;
       at = text.find(what, at + what.size()))
    ++found;
  return found;
}

TEST(Timeline, TextShowsWhoWaitsWhen) {
  const Schedule schedule = made("1f1b", 2, 2);
  EXPECT_EQ(timelineText(schedule, take(simulate(schedule)), 9),
            "1f1b: 2 ranks, 2 stages, 2 microbatches: 9 in all, bubble 33.3%\n"
            "rank 0    FF..BB.BB  busy 66.7%, 2 live\n"
            "rank 1    .FBBFBB..  busy 66.7%, 1 live\n");
}

TEST(Timeline, TextCallsAColumnWaitingThatIsMostlySo) {
  // Rank 3 works from 3 to 6 of 12: F for a quarter of the first column, B for
  // half of the second.
  const Schedule schedule = made("gpipe", 4, 1);
  EXPECT_NE(timelineText(schedule, take(simulate(schedule)), 3)
                .find("rank 3    .B.  busy 25.0%, 1 live\n"),
            std::string::npos);
}

TEST(Timeline, TextOfManyInstructionsFitsIntoALine) {
  const Schedule schedule = made("zb-v", 4, 200, 2);
  const std::string text = timelineText(schedule, take(simulate(schedule)), 60);
  EXPECT_EQ(count(text, "\n"), 5u);
  // Twenty instructions in a column are work, not waiting.
  EXPECT_LT(count(text.substr(text.find('\n')), "."), 12u);
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    EXPECT_LE(end - at, 100u);
    at = end + 1;
  }
}

/// 3 for the forwards of two microbatches on two ranks, then 9.
TEST(Timeline, LoopsAreDrawnOneBehindTheOther) {
  const Schedule step = made("1f1b", 2, 2), before = forwardsOf(step);
  const Timeline both =
      joined({before, take(simulate(before))}, {step, take(simulate(step))});
  EXPECT_EQ(timelineText(both.schedule, both.run, 12),
            "forwards, then 1f1b: 2 ranks, 2 stages, 2 microbatches: 12 in "
            "all, bubble 33.3%\n"
            "rank 0    FF.FF..BB.BB  busy 66.7%, 2 live\n"
            "rank 1    .FF.FBBFBB..  busy 66.7%, 1 live\n");
  ASSERT_EQ(both.run.transfers.size(), 6u);
  for (const Transfer &each : both.run.transfers) {
    const Span made =
        both.run.spans[size_t(each.from)][size_t(each.instruction)];
    EXPECT_DOUBLE_EQ(each.span.start, made.end);
  }
}

TEST(Timeline, TraceHasEveryInstructionOnce) {
  LowerOptions options;
  options.costs.link.latency = 0.5;
  const Schedule schedule = take(lower(made("zb-h1", 3, 4), options));
  const Simulation run = take(simulate(schedule, options.costs));
  const auto trace = nlohmann::json::parse(timelineTrace(schedule, run, 1e-3));
  size_t events = 0;
  double last = 0;
  for (const auto &event : trace.at("traceEvents")) {
    if (event.at("ph") != "X")
      continue;
    ++events;
    last = std::max(last, event.at("ts").get<double>() +
                              event.at("dur").get<double>());
    const bool transfer = event.at("cat") == "SEND_F";
    if (transfer) {
      EXPECT_EQ(event.at("tid").get<int>() % 2, 1);
      EXPECT_NEAR(event.at("dur").get<double>(), 500, 1e-6);
    }
  }
  EXPECT_EQ(events, schedule.instructionCount());
  EXPECT_NEAR(last, run.makespan * 1e3, 1e-6);
}

TEST(Timeline, PictureHasABoxForWhateverTakesTime) {
  const Schedule schedule = take(lower(made("dualpipe", 4, 8)));
  const Simulation run = take(simulate(schedule));
  const std::string svg = timelineSvg(schedule, run);
  size_t boxes = 0;
  for (const InstructionList &list : schedule.lists)
    for (const Instruction &each : list)
      boxes += isCompute(each.op) || each.op == Op::OptimizerStep;
  EXPECT_EQ(count(svg, "<title>"), boxes);
  EXPECT_EQ(count(svg, "<title>("), count(toCsv(schedule), "("));
  EXPECT_EQ(count(svg, "<svg"), 1u);
  EXPECT_EQ(count(svg, "</svg>"), 1u);
  EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
  // Nothing is fetched from elsewhere.
  EXPECT_EQ(count(svg, "http"), 1u) << "only the name of the namespace";
}

TEST(Timeline, PageHasARowARankAndEscapesNames) {
  Schedule schedule = made("1f1b", 3, 4);
  schedule.name = "<b>&";
  const std::string page = timelineHtml(schedule, take(simulate(schedule)));
  EXPECT_EQ(count(page, "<tr><td>"), 3u);
  EXPECT_EQ(count(page, "&lt;b>&amp;"), 2u);
  EXPECT_EQ(page.find("<b>"), std::string::npos);
}

TEST(Timeline, AnInstantIsDrawnToo) {
  Costs costs;
  costs.stages[0] = {0, 0, 0, 0};
  const Schedule schedule = made("1f1b", 2, 2);
  const Simulation run = take(simulate(schedule, costs));
  EXPECT_EQ(run.makespan, 0);
  EXPECT_NE(timelineText(schedule, run, 4).find("rank 1    ....  busy 0.0%"),
            std::string::npos);
  EXPECT_EQ(timelineHtml(schedule, run).find("nan"), std::string::npos);
}

} // namespace
} // namespace tessera::pipeline
