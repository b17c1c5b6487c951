#include "compiler/report/PlanReport.h"

#include "compiler/report/PipelineSchedule.h"
#include <algorithm>

namespace tessera::report {

using namespace planner;

static Json bindingJson(const Choice &choice) {
  Json counts = Json::object();
  for (std::size_t i = 1; i < choice.killed.size(); ++i)
    if (choice.killed[i] > 0)
      counts[std::string(name(Constraint(i)))] = choice.killed[i];
  return counts;
}

static Json choicesJson(const SearchResult &search) {
  Json list = Json::array();
  for (const Degree &each : searchedDegrees) {
    const std::string degree(each.name);
    auto found = search.choices.find(degree);
    if (found == search.choices.end() || found->second.size() < 2)
      continue;
    Json values = Json::array();
    for (const auto &[value, choice] : found->second) {
      Json entry = {{"value", degree == "recompute"
                                  ? std::string(name(Recompute(value)))
                                  : std::to_string(value)},
                    {"fitting", choice.fitting},
                    {"ruledOut", bindingJson(choice)}};
      if (choice.best) {
        entry["seconds"] = choice.best->cost.total;
        entry["bytes"] = choice.best->memory.total();
        entry["plan"] = describe(choice.best->plan);
      }
      values.push_back(std::move(entry));
    }
    list.push_back({{"degree", degree}, {"values", std::move(values)}});
  }
  return list;
}

static Json fastestRuledOut(const SearchResult &search) {
  const auto &fastest = search.killed[std::size_t(Constraint::Memory)].fastest;
  if (!fastest)
    return nullptr;
  return {{"plan", describe(fastest->plan)},
          {"seconds", fastest->cost.total},
          {"bytes", fastest->memory.total()}};
}

// With the chosen plan among the fastest, after them if it is slower.
static Answer withChosen(Answer answer) {
  if (!answer.search)
    return answer;
  auto &best = answer.search->best;
  const std::string chosen = describe(answer.chosen.plan);
  if (std::none_of(best.begin(), best.end(), [&](const Candidate &each) {
        return describe(each.plan) == chosen;
      }))
    best.push_back(answer.chosen);
  return answer;
}

Json planReport(const Question &question, const Answer &found,
                const Replay *replay) {
  const Answer answer = withChosen(found);
  Json json = {
      {"kind", "plan"},
      {"title", fmt::format("{} on {} GPUs of {}", question.modelName,
                            question.cluster.gpus(), question.cluster.name)},
      {"answer", Json::parse(answerJson(question, answer))},
      {"text", printAnswer(question, answer)},
      {"chosen", describe(answer.chosen.plan)},
      {"gpu", question.cluster.gpu.name},
      {"memory", question.cluster.gpu.memory},
      {"usable", usableMemory(question.cluster.gpu)}};
  if (answer.search) {
    Json names = Json::array();
    for (const Candidate &each : answer.search->best)
      names.push_back(describe(each.plan));
    json["names"] = std::move(names);
    json["choices"] = choicesJson(*answer.search);
    json["fastestRuledOut"] = fastestRuledOut(*answer.search);
  }
  if (replay)
    json["schedule"] =
        scheduleJson({replay->schedule, replay->simulation}, "ms", 1e3);
  return json;
}

} // namespace tessera::report
