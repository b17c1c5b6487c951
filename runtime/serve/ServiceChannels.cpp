// Outputs in channels: what a prompt begins of them, and their readers.
#include "runtime/serve/Service.h"

#include <algorithm>

namespace tessera::serve {

std::optional<ApiError> Service::openChannel(ApiRequest &request) const {
  const ApiError unopened{400,
                          "for this model, structured output continues the "
                          "header of a message, which "
                          "add_generation_prompt: false leaves out",
                          "add_generation_prompt", "not_supported"};
  if (request.form) { // by a field of the request
    if (!request.templated.opensAnswer)
      return unopened;
    request.opening = kFinalHeader;
    return std::nullopt;
  }
  // A call ends an output, so that there is at most one.
  const bool isStrict = std::ranges::any_of(request.tools, &Tool::strict);
  if (!needsToolForm(request) ||
      (request.toolUse == ToolUse::automatic && !isStrict))
    return std::nullopt;
  auto tool = request.tools.begin();
  if (!request.onlyTool.empty())
    tool = std::ranges::find(request.tools, request.onlyTool, &Tool::name);
  if (request.toolUse == ToolUse::automatic ||
      (request.onlyTool.empty() && request.tools.size() > 1))
    return ApiError{400,
                    "for this model, tool_choice must be auto, without strict "
                    "tools, none, or that of one function: no grammar "
                    "constrains the headers of its messages",
                    "tool_choice", "not_supported"};
  if (!request.templated.opensAnswer)
    return unopened;
  auto form = makeArgumentsForm(*tool);
  if (!form.ok())
    return ApiError{400, form.message(), "tools", "invalid_value"};
  request.opening = callHeader(tool->name);
  request.form = form.take();
  return std::nullopt;
}

std::vector<ChannelReader>
Service::channelsOf(const ApiRequest &request,
                    std::span<const EngineRequest> requests) const {
  std::vector<ChannelReader> readers;
  if (!chat.hasChannels() || request.endpoint == Endpoint::completions)
    return readers;
  std::vector<std::string> names;
  if (request.mayCall())
    for (const Tool &tool : request.tools)
      names.push_back(tool.name);
  // More bytes than a header has, of a token for each byte at most.
  constexpr std::size_t most = 300;
  for (const EngineRequest &each : requests) {
    const std::vector<uint32_t> last(
        each.prompt.end() - long(std::min(most, each.prompt.size())),
        each.prompt.end());
    readers.emplace_back(names, request.usesFunctions || !request.parallelCalls,
                         openHeader(tokenizer::decode(tokenizer, last)));
  }
  return readers;
}

} // namespace tessera::serve
