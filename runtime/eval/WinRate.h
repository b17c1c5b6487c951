// Win rates: outputs of the model against other answers, by a judge.
#pragma once
#include "runtime/eval/Runner.h"

#include <optional>

namespace tessera::eval {

/// Of the model's answer.
enum class Verdict : uint8_t { win, loss, tie };

/// What the judge's reply says, if it says anything: the last match of the
/// task's expressions is A, B or C (a tie). `isFirst`: the model's answer was
/// A.
std::optional<Verdict> verdictOf(std::string_view reply, const Task &task,
                                 bool isFirst);

std::unique_ptr<Runner> winRateRunner(const LoadedTask &loaded,
                                      const JudgeAccess &judge);

} // namespace tessera::eval
