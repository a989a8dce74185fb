"""Detect the language of a text, and stem its words.

The language is that whose function words the text has most of; English where there are none. Words are
stemmed by the Snowball algorithm of the language, English ones with irregular forms first. A stem is rarely a
word, which does not matter as long as all forms of a word share it.

Stores index stems, so a change here needs a new `omoide.retrieval.text.FEATURES_VERSION`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import MappingProxyType

from Stemmer import Stemmer

ENGLISH = "en"
_ALGORITHMS = {
    ENGLISH: "english", "de": "german", "fr": "french", "es": "spanish", "it": "italian", "pt": "portuguese",
    "nl": "dutch", "sv": "swedish", "ru": "russian",
}  # fmt: skip

_ELIDING = ("fr", "it")
"""Languages whose articles and pronouns lose their vowel before another, and are written with an apostrophe."""

_MIN_EVIDENCE = 0.15
"""Share of the words of a text that must be function words of a language other than English."""

STOP_WORDS = MappingProxyType(
    {
        language: frozenset(words.split())
        for language, words in {
            "en": """
                a about after again all also am an and any are aren as at be because been before being both but
                by can cannot could couldn did didn do does doesn doing don down during each few for from
                further get gets getting got had hadn has hasn have haven having he her here hers herself him
                himself his how i if in into is isn it its itself just ll let lot me more most mustn my myself
                no nor not now of off on once only or other our ours ourselves out over own re really same shan
                she should shouldn so some such than that the their theirs them themselves then there these they
                this those through to too under until up us ve very was wasn we weren were what when where which
                while who whom whose why will with won would wouldn yeah yes you your yours yourself yourselves
                oh hey hi wow im ive id youre thats dont didnt doesnt isnt wasnt cant
            """,
            "de": """
                aber alle als also am an auch auf aus bei beim bin bis bist da damit dann das dass dein deine dem
                den denn der des dich die dies diese diesem diesen dieser dir doch dort du ein eine einem einen
                einer eines er es etwas euch fur hab habe haben hat hatte hatten ich ihm ihn ihr ihre im in ins
                ist ja kann kein keine mal man mein meine meinem meinen meiner mich mir mit nach nicht noch nur
                ob oder ohne schon sehr sein seine seit sich sie sind so uber um und uns unser unsere vom von vor
                wann war waren warum was weil welche welchen welcher welches wenn wer werden wie wieder wir wird
                wo wurde zu zum zur
            """,
            "fr": """
                ai au aux avec avait avez avons c ce ces cet cette chez combien comme comment d dans de depuis
                des donc du elle elles en est et etait ete etre eux fait il ils j je l la le les leur leurs lui
                m ma mais me mes moi mon n ne nos notre nous on ont ou par pas peu plus pour pourquoi qu quand
                que quel quelle quelles quels qui quoi s sa sans se ses si son sont sur t ta te tes toi ton
                toujours tout tous toute tres tu un une va vos votre vous y
            """,
            "es": """
                al algo antes como con cual cuales cuando cuanta cuantas cuanto cuantos de del desde donde el
                ella ellas ellos en entre era es esa ese eso esta estan estar este esto estoy fue ha hace han
                hasta hay he la las le les lo los mas me mi mis muy no nos nuestra nuestro o os para pero por
                porque que quien quienes se si sin sobre son soy su sus te tengo tiene todo tu tus un una unas
                uno unos y ya yo
            """,
            "it": """
                ai al alla alle anche che chi ci come con cosa da dal dalla degli dei del della delle di dove e
                era essere gli ha hanno ho i il in io la le lei lo loro lui ma mi mia mio nel nella non o per
                piu quale quali quando quanto questa questo se sei si sono su sua sul suo ti tra tu un una uno vi
            """,
            "pt": """
                ao aos as com como da das de do dos e ela ele eles em era essa esse esta este eu foi ha isso ja
                mais mas me meu minha na nas nao no nos o onde os ou para pela pelo por qual quando que quem sao
                se sem ser seu sua tem tenho um uma voce
            """,
            "nl": """
                aan al als bij dan dat de deze die dit door een en er had heb hebben heeft het hij hoe ik in is je
                jij kan maar me met mijn naar niet nog nu of om onze ook op over te tot uit van veel voor waar
                waarom was wat we wel welke wie wij worden wordt ze zich zij zijn
            """,
            "sv": """
                av att de den det dig din du efter en ett for fran ha han hade har hon hur i inte jag kan man med
                men mig min mitt nar och om pa sa som till under upp var vad varfor vem vi vid ar
            """,
            "ru": """
                а без был была были в вам вас во вот все да для до его ее если есть еще и из или им их к как когда
                кто ли мне мой моя мы на не нет но о он она они от по при с со так то ты у уже что чтобы это я
            """,
        }.items()
    }
)  # fmt: skip
"""Function words by language, folded: without case and accents."""

_LANGUAGES_OF_WORD: dict[str, tuple[str, ...]] = {
    word: tuple(language for language, words in STOP_WORDS.items() if word in words)
    for word in frozenset().union(*STOP_WORDS.values())
    if len(word) > 1 or not word.isascii()  # "C" is a programming language more often than a French pronoun
}


def detect_language(words: Sequence[str]) -> str:
    """Return the language of a text, given as its folded words."""
    counts: dict[str, int] = {}
    for word in words:
        for language in _LANGUAGES_OF_WORD.get(word, ()):
            counts[language] = counts.get(language, 0) + 1
    if not counts:
        return ENGLISH
    best = max(counts, key=lambda language: (counts[language], language == ENGLISH))
    # A single foreign function word is often a name or a loan ("La Paz", "der Spiegel").
    if counts[best] <= counts.get(ENGLISH, 0) or counts[best] < max(1, _MIN_EVIDENCE * len(words)):
        return ENGLISH
    return best


def is_stop_word(word: str, language: str = ENGLISH) -> bool:
    """Return True if a folded word is a function word of English or of the language."""
    return word in STOP_WORDS[ENGLISH] or word in STOP_WORDS.get(language, ())


def stem(word: str, language: str = ENGLISH) -> str:
    """Return the stem of a folded word."""
    if language in _ELIDING:
        word = word.rsplit("'", 1)[-1]  # l'hôtel
    word = word.replace("'", "")
    if len(word) < 3 or not word.isalpha():
        return word
    if language == ENGLISH:
        word = _IRREGULAR.get(word, word)
    return _stemmer(language).stemWord(word)


@cache
def _stemmer(language: str) -> Stemmer:
    # Without the cache of PyStemmer: `text.term_of` keeps what it returned.
    return Stemmer(_ALGORITHMS[language], 0)


# Each is a base with forms that Snowball would not lead to it, or would confuse with other words.
_IRREGULAR = {
    form: base
    for line in """
    be am is are was were been being; have has had having; do does did done doing; go goes went gone going
    say said; make made; get got gotten; know knew known; think thought; take took taken; see saw seen
    come came; find found; give gave given; tell told; feel felt; become became; leave left; put putting
    mean meant; keep kept; begin began begun; show shown; hear heard; run ran running; hold held
    bring brought; write wrote written writing; sit sat sitting; stand stood; lose lost losing; pay paid
    meet met; set setting; learn learnt; lead led; grow grew grown; win won winning; teach taught
    buy bought; send sent; build built; fall fell fallen; cut cutting; sell sold; speak spoke spoken
    read reading; spend spent; drive drove driven driving; draw drew drawn; break broke broken; wear wore worn
    choose chose chosen choosing; eat ate eaten; sing sang sung; swim swam swum swimming; fly flew flown
    ride rode ridden riding; catch caught; fight fought; sleep slept; throw threw thrown
    drink drank drunk; steal stole stolen; rise rose risen rising; wake woke woken; hide hid hidden
    forget forgot forgotten
    bite bit bitten; ring rang rung; shake shook shaken; shoot shot; feed fed; lie lay lain lying
    bake baked baking baker bakery; beat beaten; bend bent; blow blew blown; dig dug; freeze froze frozen
    hang hung; hurt hurting; seek sought
    child children; man men; woman women; person people; foot feet; tooth teeth; mouse mice; life lives
    wife wives; knife knives; half halves; leaf leaves; shelf shelves; good better best; bad worse worst
    marry married marriage marries; weigh weight; die died dying death; art artist artistic
    hike hiking hiker hiked hikes; dance dancing dancer danced dances; vacation vacations; gym gyms
    photo photograph photography photographer photos; health healthy; music musical musician
    decide decision; science scientific scientist; bus buses; news; university universities
    """.replace("\n", ";").split(";")
    if line.strip()
    for base, *forms in [line.split()]
    for form in [base, *forms]
}
