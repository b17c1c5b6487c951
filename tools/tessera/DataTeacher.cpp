// tessera data teacher: the most probable next tokens of packed documents by a
// model.
#include "runtime/generate/TeacherScores.h"
#include "runtime/recipe/RecipeLimits.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/DataScoring.h"

#include <CLI/CLI.hpp>
#include <memory>

namespace tessera {

namespace {
struct TeacherArguments : ScoringArguments {
  TeacherFacts facts{.top = 32};
};
} // namespace

void addDataTeacher(CLI::App &data, Invocation &invocation) {
  auto arguments = std::make_shared<TeacherArguments>();
  CLI::App *command = data.add_subcommand(
      "teacher", "Store the most probable next tokens of a packed dataset by a "
                 "teacher, for distillation");
  addScoringOptions(*command, *arguments,
                    "run or model directory: the teacher");
  command
      ->add_option("--top", arguments->facts.top,
                   "most probable tokens to store, at least distill.top of the "
                   "recipe; the others are one class")
      ->check(CLI::Range(int64_t(1), recipe::kMostTeacherTokens))
      ->capture_default_str();
  command
      ->add_option("--temperature", arguments->facts.temperature,
                   "divides the teacher's logits: distill.temperature of the "
                   "recipe")
      ->check(CLI::Range(0.01, 100.0))
      ->capture_default_str();
  command->callback([arguments, &invocation] {
    Status status = scoreDataset(
        *arguments, "data teacher",
        fmt::format("{} most probable tokens", arguments->facts.top),
        [&](PagedModel &model, const ReportDocuments &report) {
          return scoreTeacher(arguments->dataset, model, arguments->facts,
                              report);
        });
    if (!status.ok())
      invocation.fail(status.message().c_str());
  });
}

} // namespace tessera
