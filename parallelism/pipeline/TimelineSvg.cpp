// The SVG: one row for each rank, one box for each instruction. Colors are CSS
// classes, so that the page's preference for light or dark decides.
#include <algorithm>
#include <iterator>

#include "parallelism/pipeline/Timeline.h"

namespace tessera::pipeline {

static constexpr int left = 64, top = 28, rowHeight = 26, boxHeight = 20;
static constexpr int chartWidth = 1200, rightMargin = 12, bottom = 34;
/// The width of a digit; boxes that are too narrow get no number.
static constexpr double digitWidth = 6.5;

static constexpr std::string_view style = R"(<style>
.tl text { font: 11px ui-monospace, monospace; fill: #222; }
.tl .in { fill: #fff; text-anchor: middle; }
.tl .row { fill: #eceff2; }
.tl .F { fill: #2f6db5; } .tl .B { fill: #2b8a5f; } .tl .I { fill: #2a9188; }
.tl .W { fill: #8a6d1f; } .tl .O { fill: #7a4fa3; } .tl .S { fill: #b0532f; }
.tl .later { fill-opacity: 0.8; }
.tl .page { fill: #fff; }
@media (prefers-color-scheme: dark) {
.tl text { fill: #ddd; } .tl .row { fill: #24292e; } .tl .page { fill: #14171a; }
}
</style>
)";

/// The CSS class, and the legend's letter, of an operation.
static char letterOf(Op op) {
  return op == Op::OptimizerStep ? 'S' : name(op).front();
}

static void drawBox(std::string &svg, const Schedule &schedule,
                    const Instruction &each, Span span, double scale, int y) {
  const double x = left + span.start * scale;
  const double width = (span.end - span.start) * scale;
  auto out = std::back_inserter(svg);
  // Later chunks of a rank are paler.
  const bool later =
      each.work.stage % std::max(schedule.chainStages(), 1) >= schedule.ranks;
  fmt::format_to(out,
                 "<rect class=\"{}{}\" x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" "
                 "height=\"{}\"><title>{}: {:.6g} to {:.6g}</title></rect>\n",
                 letterOf(each.op), later ? " later" : "", x, y,
                 std::max(width - 0.5, 0.3), boxHeight, toString(each),
                 span.start, span.end);
  const std::string number =
      each.work.microbatch >= 0 ? fmt::format("{}", each.work.microbatch) : "";
  if (!number.empty() && width > digitWidth * double(number.size()) + 2)
    fmt::format_to(out, "<text class=\"in\" x=\"{:.2f}\" y=\"{}\">{}</text>\n",
                   x + width / 2, y + 14, number);
}

static void drawLegend(std::string &svg, int y) {
  static constexpr std::pair<char, std::string_view> entries[] = {
      {'F', "forward"},           {'B', "backward"},
      {'I', "gradient of input"}, {'W', "gradient of weights"},
      {'O', "overlapped"},        {'S', "optimizer"}};
  int x = left;
  auto out = std::back_inserter(svg);
  for (const auto &[letter, meaning] : entries) {
    fmt::format_to(out,
                   "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"12\" "
                   "height=\"12\"/><text x=\"{}\" y=\"{}\">{}</text>\n",
                   letter, x, y, x + 17, y + 10, meaning);
    x += 40 + 7 * int(meaning.size());
  }
}

std::string timelineSvg(const Schedule &schedule, const Simulation &run) {
  const int width = left + chartWidth + rightMargin;
  const int height = top + rowHeight * schedule.ranks + bottom;
  const double scale = run.makespan > 0 ? chartWidth / run.makespan : 0;
  std::string svg = fmt::format(
      "<svg class=\"tl\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} "
      "{}\" width=\"{}\" height=\"{}\">\n",
      width, height, width, height);
  svg += style;
  svg += "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n";
  auto out = std::back_inserter(svg);
  fmt::format_to(out,
                 "<text x=\"{}\" y=\"16\">{:.6g} in all, bubble "
                 "{:.1f}%</text>\n",
                 left, run.makespan, 100 * run.bubbleFraction);
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const int y = top + rowHeight * rank;
    fmt::format_to(out,
                   "<text x=\"4\" y=\"{}\">rank {}</text><rect class=\"row\" "
                   "x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n",
                   y + 14, rank, left, y, chartWidth, boxHeight);
    const InstructionList &list = schedule.lists[size_t(rank)];
    for (size_t k = 0; k < list.size(); ++k)
      if (isCompute(list[k].op) || list[k].op == Op::OptimizerStep)
        drawBox(svg, schedule, list[k], run.spans[size_t(rank)][k], scale, y);
  }
  drawLegend(svg, top + rowHeight * schedule.ranks + 8);
  svg += "</svg>\n";
  return svg;
}

std::string markupText(std::string_view text) {
  std::string result;
  for (char each : text) {
    if (each == '<')
      result += "&lt;";
    else if (each == '&')
      result += "&amp;";
    else
      result += each;
  }
  return result;
}

std::string timelineHtml(const Schedule &schedule, const Simulation &run,
                         double unit) {
  constexpr double milliseconds = 1e3;
  // Names come from users' CSV files.
  const std::string title =
      markupText(schedule.name.empty() ? "schedule" : schedule.name);
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
      "<title>{}</title>\n<style>\n"
      ":root {{ color-scheme: light dark; }}\n"
      "body {{ font: 14px system-ui, sans-serif; margin: 2em; }}\n"
      ".scroll {{ overflow-x: auto; }}\n"
      "td, th {{ padding: 0 1em 0 0; text-align: right; }}\n"
      "</style>\n<h1>{}</h1>\n"
      "<p>{} ranks, {} stages, {} microbatches: {:.4g} ms in all, bubble "
      "{:.1f}%</p>\n<div class=\"scroll\">\n",
      title, title, schedule.ranks, schedule.stages, schedule.microbatches,
      run.makespan * unit * milliseconds, 100 * run.bubbleFraction);
  page += timelineSvg(schedule, run);
  page += "</div>\n<table>\n<tr><th>rank<th>busy ms<th>idle ms<th>live "
          "activations<th>their bytes\n";
  auto out = std::back_inserter(page);
  for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
    const RankUse &use = run.ranks[rank];
    fmt::format_to(out, "<tr><td>{}<td>{:.4g}<td>{:.4g}<td>{}<td>{:.4g}\n",
                   rank, use.busy * unit * milliseconds,
                   use.idle * unit * milliseconds, use.peakLive, use.peakBytes);
  }
  page += "</table>\n</html>\n";
  return page;
}

} // namespace tessera::pipeline
