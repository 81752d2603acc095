"""What a client may send, field by field: anything else is refused with its name. Null is as good as absent."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

MOST_ANSWERS = 128
MOST_STOPS = 16
MOST_MESSAGES = 4096
MOST_TOOLS = 128
MOST_GAMMA = 16

Stop = Annotated[str, Field(min_length=1, max_length=1024)]
TokenId = Annotated[int, Field(ge=0)]
TokenIds = Annotated[list[TokenId], Field(max_length=1 << 18)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class StreamOptions(Body):
    include_usage: bool | None = Field(None, description="One more chunk before the end, with the usage.")


class JsonSchema(Body):
    """A schema under its name; `schema` is its field."""

    name: str = Field(max_length=64)
    description: str | None = None
    schema_: dict[str, JsonValue] | None = Field(None, alias="schema")
    strict: bool | None = None


class TextFormat(Body):
    type: Literal["text"]


class JsonObjectFormat(Body):
    type: Literal["json_object"]


class JsonSchemaFormat(Body):
    type: Literal["json_schema"]
    json_schema: JsonSchema


class RegexFormat(Body):
    """Extension: all of the answer matches a regular expression."""

    type: Literal["regex"]
    pattern: str = Field(min_length=1, max_length=1 << 16)


class ChoiceFormat(Body):
    """Extension: the answer is one of these texts."""

    type: Literal["choice"]
    choices: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=4096)]


class GrammarFormat(Body):
    """Extension: the answer follows a grammar in Lark's notation."""

    type: Literal["grammar"]
    grammar: str = Field(min_length=1, max_length=1 << 20)


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat | RegexFormat | ChoiceFormat | GrammarFormat,
    Field(discriminator="type"),
]


class Chance(Body):
    """What both kinds of answers take: how to sample, how long, and how to guess ahead."""

    model: str | None = Field(None, description="The served model's name; absent is as good.")
    max_tokens: int | None = Field(None, ge=1, description="The answer's length in tokens, at most.")
    temperature: float | None = Field(None, ge=0, description="0 takes the likeliest token; 1 when absent.")
    top_p: float | None = Field(None, gt=0, le=1, description="The likeliest tokens of this mass; 1 (off) when absent.")
    n: int | None = Field(None, ge=1, le=MOST_ANSWERS, description="Answers to each prompt.")
    seed: int | None = Field(None, ge=0, lt=2**64, description="The same seed gives the same answer.")
    stop: Stop | Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = Field(
        None, description="Added to the logits of these token ids.", json_schema_extra={"maxProperties": 1024}
    )
    user: str | None = Field(None, max_length=256, description="Written to the log; makes no difference.")

    top_k: int | None = Field(None, ge=0, description="Extension: the K likeliest tokens; 0 is off.")
    min_p: float | None = Field(
        None, ge=0, le=1, description="Extension: tokens this likely against the likeliest; 0 is off."
    )
    repetition_penalty: float | None = Field(None, gt=0, description="Extension: 1 is off.")
    draft: str | None = Field(
        None, max_length=64, description="Extension: who guesses ahead: auto, none, or one of the server's drafters."
    )
    gamma: Annotated[int, Field(ge=0, le=MOST_GAMMA)] | Literal["auto"] | None = Field(
        None, description="Extension: how many tokens are guessed a step; auto is the server's own way."
    )
    verify: Literal["coupled", "block", "token"] | None = Field(
        None, description="Extension: the rule that keeps the answer the model's own."
    )
    min_tokens: int | None = Field(None, ge=0, description="Extension: no token ends the answer before so many.")
    ignore_eos: bool | None = Field(None, description="Extension: go on where the model would end its answer.")
    stop_token_ids: TokenIds | None = Field(None, description="Extension: end at any of these tokens.")
    banned_token_ids: TokenIds | None = Field(None, description="Extension: never draw these tokens.")
    allowed_token_ids: TokenIds | None = Field(None, description="Extension: draw only these tokens.")
    response_format: ResponseFormat | None = Field(None, description="What the answer must look like.")
    timeout: float | None = Field(
        None, gt=0, le=86_400, description="Extension: seconds after which the answer is ended with an error."
    )


class Text(Body):
    type: Literal["text"]
    text: str


class FunctionCall(Body):
    name: str
    arguments: str = Field(description="A JSON object, as text.")


class Call(Body):
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class System(Body):
    role: Literal["system", "developer"]
    content: str | list[Text]
    name: str | None = None


class User(Body):
    role: Literal["user"]
    content: str | list[Text]
    name: str | None = None


class Assistant(Body):
    role: Literal["assistant"]
    content: str | list[Text] | None = None
    tool_calls: list[Call] | None = None
    refusal: None = None
    name: str | None = None


class ToolResult(Body):
    role: Literal["tool"]
    content: str | list[Text]
    tool_call_id: str


Message = Annotated[System | User | Assistant | ToolResult, Field(discriminator="role")]


class Function(Body):
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None


class Tool(Body):
    type: Literal["function"]
    function: Function


class FunctionName(Body):
    name: str


class NamedTool(Body):
    type: Literal["function"]
    function: FunctionName


class ChatBody(Chance):
    """A chat to go on with: `POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_MESSAGES)]
    max_completion_tokens: int | None = Field(None, ge=1, description="Another name of max_tokens.")
    origins: bool | None = Field(
        None, description="Extension: with each token, where it came from and how likely both models held it."
    )
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: Annotated[list[Tool], Field(max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None


Ids = Annotated[list[TokenId], Field(min_length=1)]
Texts = Annotated[list[str], Field(min_length=1, max_length=MOST_ANSWERS)]
ManyIds = Annotated[list[Ids], Field(min_length=1, max_length=MOST_ANSWERS)]


class CompletionBody(Chance):
    """A text to go on with, as it is: `POST /v1/completions`."""

    prompt: str | Texts | Ids | ManyIds
    logprobs: int | None = Field(None, ge=0, le=20)


class TokenizeBody(Body):
    content: str
    parse_special: bool = Field(True, description="Read <|im_end|> and its like as the tokens that they spell.")
    with_pieces: bool = Field(False, description="Give the text of each token too.")


class DetokenizeBody(Body):
    tokens: Annotated[list[TokenId], Field(max_length=1 << 20)]


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """What every refusal looks like."""

    error: ErrorDetail


Json = dict[str, Any]
