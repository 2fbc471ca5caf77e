"""The required results of lemmatising with any dictionary: pairs of texts, and checksums of dictionaries.

If a pair fails, two facts would be merged. If a checksum fails, simplemma's dictionary differs from the one that stored
hashes were made with, although its version is the same: new texts would not merge with stored ones.
"""

from __future__ import annotations

import hashlib

from memfold_py.lemma import LANGUAGES, forms_version, lemma_of, lemmatize

GOLDEN: tuple[tuple[str, str, str, bool, str], ...] = (
    # language, text, text, whether both become one text, what the pair is about
    ("en", "user likes dogs", "user liked dogs", True, "tense"),
    ("en", "User likes dogs.", "User like dogs.", True, "person"),
    ("en", "User likes dogs", "User likes dog", True, "number"),
    ("en", "User has bought three cats", "User has bought three cat", True, "number beside a numeral"),
    ("en", "Anna went to Rome", "Anna goes to Rome", True, "irregular past"),
    ("en", "Anna stopped smoking", "Anna stops smoking", True, "doubled consonant"),
    ("en", "Anna studies law", "Anna studied law", True, "y and i"),
    ("en", "the children play", "the child plays", True, "irregular plural"),
    ("en", "User does not like dogs", "User likes dogs", False, "negation"),
    ("en", "User never smoked", "User smokes", False, "negation"),
    ("en", "User hardly drinks", "User drinks", False, "negation"),
    ("en", "User cannot swim", "User can swim", False, "negation"),
    ("en", "User isn't vegan", "User is vegan", False, "contracted negation"),
    ("en", "User lives without pets", "User lives with pets", False, "negation by preposition"),
    ("en", "User is unhappy", "User is happy", False, "un-"),
    ("en", "User dislikes dogs", "User likes dogs", False, "dis-"),
    ("en", "User is careless", "User is careful", False, "-less"),
    ("en", "Woods likes dogs", "Wood likes dogs", False, "name"),
    ("en", "User met Brooks", "User met Brook", False, "name"),
    ("en", "User reads The Times", "User reads The Time", False, "name"),
    ("en", "User has two dogs", "User has three dogs", False, "numeral"),
    ("en", "User has 2 dogs", "User has 3 dogs", False, "digits"),
    ("en", "User pays 5 €", "User pays 5 $", False, "symbol"),
    ("en", "User runs node-14", "User runs node-16", False, "identifier"),
    ("en", "User opens run_tests", "User opens run_test", False, "identifier"),
    ("en", "User opens docs.txt", "User opens doc.txt", False, "file"),
    ("en", "User follows @dogs", "User follows @dog", False, "handle"),
    ("en", "User uses `cats`", "User uses `cat`", False, "code"),
    ("en", 'User typed "likes"', 'User typed "liked"', False, "quotation"),
    ("en", "User passes --tests", "User passes --test", False, "option"),
    ("en", "see example.com/cats", "see example.com/cat", False, "URL"),
    ("en", "Tom loves Anna", "Anna loves Tom", False, "roles"),
    ("en", "Tom follows Anna", "Tom is followed by Anna", False, "roles, passive"),
    ("en", "User loves him", "He loves user", False, "roles"),
    ("en", "User is faster", "User is fast", False, "comparative"),
    ("en", "User is the fastest", "User is the faster", False, "superlative"),
    ("en", "User likes tea better", "User likes good tea", False, "comparative"),
    ("en", "User likes tea more", "User likes tea most", False, "degree"),
    ("en", "User is bored", "User is boring", False, "participles"),
    ("en", "User is following Anna", "User is followed Anna", False, "participles"),
    ("en", "User used to smoke", "User uses to smoke", False, "used to"),
    ("en", "User founded shops", "User found shops", False, "lemma that is a form itself"),
    ("en", "User is a nurse", "User was a nurse", False, "what was may be no more"),
    ("en", "User has a dog", "User had a dog", False, "what was may be no more"),
    ("en", "the dogs are old", "the dogs is old", True, "number of the verb"),
    ("en", "User may come", "User must come", False, "modal verb"),
    ("en", "User likes some dogs", "User likes all dogs", False, "quantifier"),
    ("en", "User wears glasses", "User wears glass", False, "plural with a sense of its own"),
    ("en", "User broke it", "User broken it", False, "irregular participle"),
    ("de", "Paul wohnt in Bonn", "Paul wohnte in Bonn", True, "tense"),
    ("de", "Paul kauft Brot", "Paul kaufte Brot", True, "tense"),
    ("de", "alte Freunde besuchen Paul", "alten Freunde besuchen Paul", True, "ending of an adjective"),
    ("de", "das kleine Haus", "das kleines Haus", True, "ending of an adjective"),
    ("de", "Paul wohnt nicht in Bonn", "Paul wohnt in Bonn", False, "negation"),
    ("de", "Paul kauft kein Brot", "Paul kauft ein Brot", False, "negation"),
    ("de", "Paul raucht nie", "Paul raucht", False, "negation"),
    ("de", "Paul raucht kaum", "Paul raucht", False, "negation"),
    ("de", "Paul ist unglücklich", "Paul ist glücklich", False, "un-"),
    ("de", "Paul wird verfolgt", "Paul wird verfolgen", False, "passive and future"),
    ("de", "Paul wurde besucht", "Paul wurde besuchen", False, "passive"),
    ("de", "sie kauft Brot", "sie kaufen Brot", False, "she and they"),
    ("de", "Paul ist kleiner", "Paul ist klein", False, "comparative"),
    ("de", "Paul hat kleinere Hunde", "Paul hat kleine Hunde", False, "comparative"),
    ("de", "Paul hat die kleinsten Hunde", "Paul hat die kleinen Hunde", False, "superlative"),
    ("de", "Paul mag Tee", "Paul möchte Tee", False, "mood"),
    ("de", "Paul käme gern", "Paul kommt gern", False, "mood"),
    ("de", "Anna arbeitet hier", "Anna arbeitete hier", True, "tense after t"),
    ("de", "ihr saget es", "ihr sagt es", False, "mood"),
    ("de", "Paul kann schwimmen", "Paul muss schwimmen", False, "modal verb"),
    ("de", "Wagners wohnen hier", "Wagner wohnen hier", False, "name"),
    ("de", "Paul hat zwei Hunde", "Paul hat drei Hunde", False, "numeral"),
    ("de", "Paul zahlt 5 €", "Paul zahlt 5 $", False, "symbol"),
    ("de", "Paul hilft ihm", "Er hilft Paul", False, "roles"),
    ("de", "Paul mag viele Hunde", "Paul mag wenige Hunde", False, "quantifier"),
    ("de", "Paul hilft ihr", "Paul hilft ihnen", False, "pronoun"),
    ("fr", "Paul aime les chiens", "Paul aimait les chiens", True, "tense"),
    ("fr", "Paul habite à Lyon", "Paul habitait à Lyon", True, "tense"),
    ("fr", "Paul a trois chiens", "Paul a trois chien", True, "number"),
    ("fr", "Paul aime les chevaux", "Paul aime les cheval", True, "number"),
    ("fr", "Paul n'aime pas les chiens", "Paul aime les chiens", False, "negation"),
    ("fr", "Paul ne fume jamais", "Paul ne fume plus", False, "negation"),
    ("fr", "Paul fume rarement", "Paul fume", False, "negation"),
    ("fr", "Paul vit sans chien", "Paul vit avec chien", False, "negation by preposition"),
    ("fr", "Paul est malheureux", "Paul est heureux", False, "mal-"),
    ("fr", "Paul aimera les chiens", "Paul aime les chiens", False, "future"),
    ("fr", "Paul aimerait un chien", "Paul aimait un chien", False, "conditional"),
    ("fr", "Paul est aimé", "Paul aime", False, "passive"),
    ("fr", "la femme aimée", "la femme aime", False, "participle"),
    ("fr", "Paul est plus petit", "Paul est moins petit", False, "degree"),
    ("fr", "un meilleur ami", "un bon ami", False, "comparative"),
    ("fr", "Blancs aime Paul", "Blanc aime Paul", False, "name"),
    ("fr", "Paul a deux chiens", "Paul a trois chiens", False, "numeral"),
    ("fr", "Paul paie 5 €", "Paul paie 5 $", False, "symbol"),
    ("fr", "Paul aime Marie", "Marie aime Paul", False, "roles"),
    ("fr", "je parle anglais", "il parle anglais", False, "person"),
    ("fr", "Paul a une amie", "Paul a un ami", False, "gender"),
    ("fr", "Paul aime les échecs", "Paul aime les échec", False, "plural with a sense of its own"),
    ("fr", "Paul peut nager", "Paul doit nager", False, "modal verb"),
    ("es", "Ana trabaja en Madrid", "Ana trabajó en Madrid", True, "tense"),
    ("es", "Ana vive en Madrid", "Ana vivió en Madrid", True, "tense"),
    ("es", "le gustan los perros", "le gustan los perro", True, "number"),
    ("es", "Ana canta tres canciones", "Ana canta tres canción", True, "number"),
    ("es", "Ana no vive en Madrid", "Ana vive en Madrid", False, "negation"),
    ("es", "Ana nunca fuma", "Ana siempre fuma", False, "negation"),
    ("es", "Ana apenas fuma", "Ana fuma", False, "negation"),
    ("es", "Ana vive sin perro", "Ana vive con perro", False, "negation by preposition"),
    ("es", "Ana es infeliz", "Ana es feliz", False, "in-"),
    ("es", "vivo en Madrid", "vive en Madrid", False, "person"),
    ("es", "vives en Madrid", "vive en Madrid", False, "person"),
    ("es", "trabajo en Madrid", "trabaja en Madrid", False, "person"),
    ("es", "trabajé en Madrid", "trabajó en Madrid", False, "person"),
    ("es", "compras pan", "compra pan", False, "person or number"),
    ("es", "viven en Madrid", "vive en Madrid", False, "he and they"),
    ("es", "Ana trabajará en Madrid", "Ana trabaja en Madrid", False, "future"),
    ("es", "Ana viviría en Madrid", "Ana vivió en Madrid", False, "conditional"),
    ("es", "que Ana viva", "que Ana vive", False, "mood"),
    ("es", "Ana es amada", "Ana es ama", False, "participle"),
    ("es", "una amiga fuerte", "un amigo fuerte", False, "gender"),
    ("es", "Ana es mejor", "Ana es buena", False, "comparative"),
    ("es", "Ana habla más", "Ana habla menos", False, "degree"),
    ("es", "Flores vive aquí", "Flor vive aquí", False, "name"),
    ("es", "Ana tiene dos perros", "Ana tiene tres perros", False, "numeral"),
    ("es", "Ana paga 5 €", "Ana paga 5 $", False, "symbol"),
    ("es", "Ana ama a Luis", "Luis ama a Ana", False, "roles"),
    ("es", "los padres de Ana", "los padre de Ana", False, "plural with a sense of its own"),
    ("it", "Anna lavora a Roma", "Anna lavorava a Roma", True, "tense"),
    ("it", "Anna abita a Roma", "Anna abitava a Roma", True, "tense"),
    ("it", "Anna ama i gatti", "Anna ama i gatto", True, "number"),
    ("it", "Anna ha tre cani", "Anna ha tre cane", True, "number"),
    ("it", "Anna non lavora", "Anna lavora", False, "negation"),
    ("it", "Anna fuma mai", "Anna fuma sempre", False, "negation"),
    ("it", "Anna vive senza cane", "Anna vive con cane", False, "negation by preposition"),
    ("it", "Anna è infelice", "Anna è felice", False, "in-"),
    ("it", "lavoro a Roma", "lavora a Roma", False, "person"),
    ("it", "lavori a Roma", "lavoro a Roma", False, "person"),
    ("it", "lavorano a Roma", "lavora a Roma", False, "he and they"),
    ("it", "lavorerà a Roma", "lavora a Roma", False, "future"),
    ("it", "lavorerebbe a Roma", "lavorava a Roma", False, "conditional"),
    ("it", "Anna è amata", "Anna è ama", False, "participle"),
    ("it", "un'amica forte", "un amico forte", False, "gender"),
    ("it", "Anna è migliore", "Anna è buona", False, "comparative"),
    ("it", "Anna parla più", "Anna parla meno", False, "degree"),
    ("it", "Rossi ama Anna", "Rosso ama Anna", False, "name"),
    ("it", "Anna ha due cani", "Anna ha tre cani", False, "numeral"),
    ("it", "Anna paga 5 €", "Anna paga 5 $", False, "symbol"),
    ("it", "Anna ama Luca", "Luca ama Anna", False, "roles"),
    ("it", "Anna porta gli occhiali", "Anna porta gli occhiale", False, "plural with a sense of its own"),
    ("pt", "Ana gosta de Lisboa", "Ana gostou de Lisboa", True, "tense"),
    ("pt", "Ana mora em Lisboa", "Ana morou em Lisboa", True, "tense"),
    ("pt", "Ana ama os gatos", "Ana ama os gato", True, "number"),
    ("pt", "Ana come limões", "Ana come limão", True, "number"),
    ("pt", "Ana não mora aqui", "Ana mora aqui", False, "negation"),
    ("pt", "Ana nunca fuma", "Ana sempre fuma", False, "negation"),
    ("pt", "Ana vive sem gato", "Ana vive com gato", False, "negation by preposition"),
    ("pt", "Ana é infeliz", "Ana é feliz", False, "in-"),
    ("pt", "moro em Lisboa", "mora em Lisboa", False, "person"),
    ("pt", "moras em Lisboa", "mora em Lisboa", False, "person"),
    ("pt", "morei em Lisboa", "morou em Lisboa", False, "person"),
    ("pt", "moram em Lisboa", "mora em Lisboa", False, "he and they"),
    ("pt", "para morares aqui", "para morar aqui", False, "person of the infinitive"),
    ("pt", "morará em Lisboa", "mora em Lisboa", False, "future"),
    ("pt", "moraria em Lisboa", "mora em Lisboa", False, "conditional"),
    ("pt", "Ana é amada", "Ana é ama", False, "participle"),
    ("pt", "uma amiga forte", "um amigo forte", False, "gender"),
    ("pt", "Ana é melhor", "Ana é boa", False, "comparative"),
    ("pt", "Ana fala mais", "Ana fala menos", False, "degree"),
    ("pt", "Campos mora aqui", "Campo mora aqui", False, "name"),
    ("pt", "Ana tem dois gatos", "Ana tem três gatos", False, "numeral"),
    ("pt", "Ana paga 5 €", "Ana paga 5 $", False, "symbol"),
    ("pt", "Ana ama Rui", "Rui ama Ana", False, "roles"),
    ("pt", "Ana usa óculos", "Ana usa óculo", False, "plural with a sense of its own"),
)

# Every stem with every ending: their lemmas must not change, whether or not they are words or in the dictionary.
_WORDS: dict[str, tuple[str, str]] = {
    "en": (
        "accept add allow answer appear ask avoid bak believ book build call car cat chang child citi clean clos cook "
        "copi count cri danc decid dog drop enjoy explain fail fish follow game happi help hop invit jump knif know lik "
        "list liv look lov mov need offer open paint pass plan play prefer rain reach remember sav small stop stor studi "
        "talk teach train travel tri trust visit wait walk want watch work write",
        "_ s es e ed d ing er est y",
    ),
    "de": (
        "acht alt arbeit back bau besuch blau brauch dank dien dreh erzähl fehl frag freund führ fühl glaub groß hasst heiz "
        "hör jung kauf klein koch kost lach leb lern lieb lieg mach mal mein merk nutz öffn rauch red reis rot sag samml "
        "schick schnell schön setz spar spiel stell such tanz tausch teil träum trenn üb verfolg wähl wart wein wohn wünsch "
        "zahl zeig ziel",
        "_ e en em es er t te ten st",
    ),
    "fr": (
        "achet aid aim ami apport arriv attend bleu bross cass chang chant chat cheval chien cherch compt connaît cour "
        "coût cuisin dans demand dessin détest donn écout entend entr étudi ferm fin fum gagn gard grand habit jou journ "
        "laiss lav livr mang march mont montr oubli parl part pass pay pens perd petit pleur port préfèr prépar quitt "
        "refus regard rend rest rouge travaill trouv utilis vend voiture voyag",
        "_ e es ent ait aient er é ée ir it re s x",
    ),
    "es": (
        "abr acept am amig and aprend ayud bail beb busc camin canci cant cas cen cocin com compr comprend cre cuid dej "
        "desayun dibuj discut entr escrib escuch esper estudi fum gan gast gat guard habl invit lav le libr limpi llam lleg "
        "llev luch mand mir nad necesit niñ odi olvid pag pas perr pint pregunt prepar prest recib respond rob sub tom "
        "trabaj us vend viaj visit viv",
        "_ o a e as es os an en ar er ir ó ió aba",
    ),
    "it": (
        "abit accett aiut am amic ascolt aspett ball cammin can cant cas cen cerc chiam chied compr corr cred cucin detest "
        "disegn domand dorm entr fin fum gatt gioc guard guid impar incontr invit lasci lav lavor legg libr mand mangi mett "
        "mostr nuot odi offr pag parl pass pens perd port prefer prend prepar prest ricev ricord rispond scriv segu sent "
        "sper studi tagli telefon torn trov us vend viaggi visit viv",
        "_ o a e i he are ere ire ava eva iva ò isce ono",
    ),
    "pt": (
        "abr aceit acord ajud alug am amig and aprend assist avis beb brinc busc cach caminh cant cas casa chor comec com "
        "compr convid corr cozinh cuid danç decid deix discut entr escrev escut esper estud fal fum ganh gast gat gost "
        "gritar guard jog jant lav le limp livr lut mand mor mostr nad odei olh pag part pass perd pergunt pint prepar "
        "receb respond sub toc tom trabalh us vend viaj visit viv",
        "_ o a e as es os am em ar er ir ou eu iu ões",
    ),
}

CHECKSUMS: dict[str, str] = {
    "de": "651e02dfb475fc7db9831b2b2b360f336d26c4f1b02243bc0134d6f5dbf0e751",
    "en": "171cb20015154a263fa8feb473c60298d94f5d7d33032adf8ad621cb3c7b409b",
    "es": "db056e39385ea28d089f15e8bac3eb4c79f3cb2bdc092218dafdd6320d55bb85",
    "fr": "9c2cc91bb49d0260ff45b31cec13ef8f62cb58177655a5d1f3512e78e99bbab3",
    "it": "3851a3b614123a68effa5ca5671eb6737e934cca9eab5f2471de639a5a329496",
    "pt": "463b236c21a087b0fdcff30718efb124697a87cfb689335caa347dd00c7939a6",
}
"""SHA-256 over the lemmas in simplemma 2.0.0: those of the dictionary, and those derived from them."""


def checksum(language: str) -> str:
    """The checksum of what is installed, over the generated words and those of the golden pairs."""
    stems, endings = _WORDS[language]
    words = {stem + ending.strip("_") for stem in stems.split() for ending in endings.split()}
    for pair_language, text, other, _, _ in GOLDEN:
        if pair_language == language:
            words.update(text.lower().split() + other.lower().split())
    lines = "".join(
        f"{word}\t{lemma_of(word, language)}\t{lemmatize(word, language)}\n" for word in sorted(words)
    )
    return hashlib.sha256(lines.encode()).hexdigest()


def selftest() -> list[tuple[str, bool, str]]:
    """A row per language: its profile's name, whether everything matches, and what does not."""
    rows = []
    for language in LANGUAGES:
        pairs = [pair for pair in GOLDEN if pair[0] == language]
        faults = [
            f"{text!r} and {other!r} {'differ' if equal else 'are one'} ({note})"
            for _, text, other, equal, note in pairs
            if (lemmatize(text, language).lower() == lemmatize(other, language).lower()) != equal
        ]
        if checksum(language) != CHECKSUMS[language]:
            faults.append(f"the lemmas of {forms_version()} are not those that this package was made with")
        detail = "; ".join(faults) or f"{len(pairs)} pairs and the checksum hold"
        rows.append((f"lemma/1:{language}:{forms_version()}", not faults, detail))
    return rows
