// The programs that a training run keeps ready. They share one arena, so the
// largest of theirs counts; `logits` belongs to generation.
#pragma once
#include <string_view>

namespace tessera::artifact {

constexpr std::string_view kTrainingPrograms[] = {"init", "train_step",
                                                  "eval_step"};

} // namespace tessera::artifact
