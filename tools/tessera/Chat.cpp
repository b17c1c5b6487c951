// tessera chat: a conversation at the terminal, or with lines from a pipe.
#include "compiler/api/AdapterSettings.h"
#include "compiler/api/OpenedModel.h"
#include "runtime/serve/ChatSession.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/GenerateSettings.h"
#include "tools/tessera/Note.h"
#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <unistd.h>

using namespace tessera;

static constexpr size_t maxLineBytes = 1 << 20;
static constexpr const char *help =
    "/reset        starts a new conversation\n"
    "/system TEXT  starts a new conversation with this system prompt; without "
    "TEXT: with none\n"
    "/set NAME VALUE  changes a setting; /set alone lists the settings\n"
    "/help         lists these commands\n"
    "/exit         ends the program, as Ctrl-D does; Ctrl-C stops an answer\n"
    "//TEXT        sends /TEXT\n";

//===--- the terminal ---------------------------------------------------===//

static volatile std::sig_atomic_t interrupted = 0;

// Without SA_RESTART, so that a read of stdin is interrupted as well.
static void catchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

namespace {
/// Lines of stdin.
class Lines {
public:
  enum class Result : uint8_t { Line, End, Interrupted, TooLong, Failed };
  Result next(std::string &line);

private:
  std::string held;
};

struct ChatCommand {
  GenerateSettings settings;
  std::string system;
};
} // namespace

Lines::Result Lines::next(std::string &line) {
  char buffer[4096];
  for (size_t seen = 0;;) {
    size_t end = held.find('\n', seen);
    if (end != held.npos) {
      line = held.substr(0, end);
      held.erase(0, end + 1);
      return Result::Line;
    }
    if (held.size() > maxLineBytes)
      return Result::TooLong;
    seen = held.size();
    ssize_t count = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR)
      return Result::Interrupted;
    if (count < 0)
      return Result::Failed;
    if (count == 0) { // the last line may lack a newline
      line = std::exchange(held, {});
      return line.empty() ? Result::End : Result::Line;
    }
    held.append(buffer, size_t(count));
  }
}

//===--- the conversation -----------------------------------------------===//

namespace {
class Terminal {
public:
  Terminal(ChatSession &session, ChatCommand &command,
           std::vector<int32_t> endTokens)
      : session(session), command(command), endTokens(std::move(endTokens)) {}
  /// Runs until the input ends; returns the last error if stdin is not a
  /// terminal.
  Status run();

private:
  Status take(const std::string &line);
  Status obey(const std::string &line);
  Status set(std::string_view words);
  Status answer(const std::string &message);

  ChatSession &session;
  ChatCommand &command;
  std::vector<int32_t> endTokens;
  const bool isTerminal = ::isatty(STDIN_FILENO) != 0;
  bool leaves = false;
};
} // namespace

Status Terminal::answer(const std::string &message) {
  const GenerateOptions &options = command.settings.options;
  auto show = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  interrupted = 0;
  auto done =
      session.say(message, {endTokens, options.maxTokens, options.sampling},
                  show, [] { return interrupted != 0; });
  if (!done.ok())
    return Status::error("{}; /reset starts a new conversation",
                         done.message());
  show("\n");
  if (done->full)
    note("the context is full; /reset starts a new conversation");
  if (!command.settings.quiet)
    std::fprintf(stderr, "%lld tokens kept, %lld read, %lld generated\n",
                 (long long)done->kept, (long long)done->read,
                 (long long)done->generated);
  return Status::success();
}

Status Terminal::set(std::string_view words) {
  size_t space = words.find(' ');
  if (words.empty()) {
    std::fputs(command.settings.list().c_str(), stderr);
    return Status::success();
  }
  if (space == words.npos)
    return Status::error(
        "/set expects a name and a value, such as /set temperature 0.5");
  return command.settings.change(std::string(words.substr(0, space)),
                                 std::string(words.substr(space + 1)));
}

Status Terminal::obey(const std::string &line) {
  size_t space = std::min(line.find(' '), line.size());
  std::string name = line.substr(0, space);
  std::string rest = space < line.size() ? line.substr(space + 1) : "";
  if (name == "/set")
    return set(rest);
  if (name == "/system")
    command.system = rest;
  if (name == "/system" || name == "/reset")
    session.reset(command.system);
  else if (name == "/exit" || name == "/quit")
    leaves = true;
  else if (name == "/help")
    std::fputs(help, stderr);
  else
    return Status::error("unknown command {}; /help lists the commands", name);
  return Status::success();
}

Status Terminal::take(const std::string &line) {
  if (line.empty())
    return Status::success();
  if (line[0] != '/')
    return answer(line);
  return line.starts_with("//") ? answer(line.substr(1)) : obey(line);
}

Status Terminal::run() {
  Lines lines;
  Status last;
  std::string line;
  while (!leaves) {
    if (isTerminal)
      std::fputs("> ", stderr);
    switch (lines.next(line)) {
    case Lines::Result::End:
      if (isTerminal)
        std::fputs("\n", stderr);
      return last;
    case Lines::Result::Interrupted:
      std::fputs("\n(/exit or Ctrl-D ends)\n", stderr);
      continue;
    case Lines::Result::TooLong:
      return Status::error("a line of more than {} bytes", maxLineBytes);
    case Lines::Result::Failed:
      return Status::error("stdin cannot be read");
    case Lines::Result::Line:
      break;
    }
    Status status = take(line);
    if (status.ok())
      continue;
    if (isTerminal)
      note(status.message());
    else
      return status; // the following lines were written for another answer
  }
  return last;
}

static Status chat(ChatCommand &command) {
  GenerateSettings &settings = command.settings;
  TESSERA_RETURN_IF_ERROR(checkSampling(settings.options.sampling));
  OpenedModel opened;
  TESSERA_RETURN_IF_ERROR(
      readModel(opened, settings.choice("chat"), settings.adapter));
  std::string lacks;
  TESSERA_RETURN_IF_ERROR(opened.readChat(lacks));
  if (!lacks.empty())
    return Status::error(
        "{} has no chat template (chat_template.jinja, or \"chat_template\" in "
        "tokenizer_config.json); use tessera generate instead",
        opened.folder);
  if (opened.isRun)
    settings.take({});
  else
    TESSERA_RETURN_IF_ERROR(settings.takeAndSay(opened.config, note));
  TESSERA_RETURN_IF_ERROR(opened.open(/*mayScore=*/false, note));
  auto decoder = Decoder::create(opened.model->get());
  if (!decoder.ok())
    return decoder.status();
  if (!settings.adapter.empty()) {
    TESSERA_RETURN_IF_ERROR(loadAdapter(settings.adapter, opened));
    (*decoder)->useAdapter(0);
  }
  ChatSession session(**decoder, *opened.tokenizer, opened.chat());
  session.reset(command.system);
  if (::isatty(STDIN_FILENO)) // in a pipe, an interrupt ends the whole pipe
    catchInterrupts();
  return Terminal(session, command, opened.ends()).run();
}

void tessera::addChatCommand(CLI::App &app, Invocation &invocation) {
  CLI::App *subcommand =
      app.add_subcommand("chat", "Chat with a Hugging Face model or a trained "
                                 "run; each line is a message");
  auto command = std::make_shared<ChatCommand>();
  command->settings.options.maxTokens = 2048;
  command->settings.addTo(*subcommand, invocation.words);
  subcommand->add_option("--system", command->system, "system prompt");
  subcommand->footer(std::string("Commands in the conversation:\n") + help);
  subcommand->callback([command, &invocation] {
    if (Status status = chat(*command); !status.ok())
      invocation.fail(status.message().c_str());
  });
}
