// The subcommands of `tessera`, one file each. Each function adds its
// subcommand to the application and sets `exitCode` when it ran.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace tessera {

/// Global state of one invocation: what main() returns.
struct Invocation {
  int exitCode = 0;
  std::vector<std::string> words; ///< arguments, without "tessera"
  /// Prints "tessera: MESSAGE" to stderr and makes the exit code 1.
  void fail(const char *message);
};

void addCompileCommand(CLI::App &app, Invocation &invocation);
void addGenerateCommand(CLI::App &app, Invocation &invocation);
void addEmbedCommand(CLI::App &app, Invocation &invocation);
void addRerankCommand(CLI::App &app, Invocation &invocation);
void addScoreCommand(CLI::App &app, Invocation &invocation);
void addEvalCommand(CLI::App &app, Invocation &invocation);
void addRlCommand(CLI::App &app, Invocation &invocation);
void addRolloutWorkerCommand(CLI::App &app, Invocation &invocation);
void addQuantizeCommand(CLI::App &app, Invocation &invocation);
void addServeCommand(CLI::App &app, Invocation &invocation);
void addDataCommand(CLI::App &app, Invocation &invocation);
/// `tessera data chat`.
void addDataChat(CLI::App &data, Invocation &invocation);
void addDataReference(CLI::App &data, Invocation &invocation);
void addDataTeacher(CLI::App &data, Invocation &invocation);
void addChatCommand(CLI::App &app, Invocation &invocation);
void addExportCommand(CLI::App &app, Invocation &invocation);
void addImportCommand(CLI::App &app, Invocation &invocation);
void addInspectCommand(CLI::App &app, Invocation &invocation);
void addDoctorCommand(CLI::App &app, Invocation &invocation);
void addBenchCommand(CLI::App &app, Invocation &invocation);
/// `tessera bench infer`.
void addBenchInfer(CLI::App &bench, Invocation &invocation);
void addPlanCommand(CLI::App &app, Invocation &invocation);

} // namespace tessera
