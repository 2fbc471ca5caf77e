"""Words that lemmatising does not change, per language: data only.

FUNCTION: function words, negations, quantifiers, modal verbs, numerals, and auxiliaries. They decide who does what to
whom, how often and whether at all; two texts that differ in one of them are two facts.
OWN_SENSE: forms with a meaning that their lemma lacks (glasses, shorts, échecs), or that are forms of two words.
IRREGULAR: English forms that no rule derives from their lemma but that may still be replaced.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FUNCTION: dict[str, frozenset[str]] = {
    "en": _words("""
        a an the this that these those here there who whom whose which what when where why how
        i me my mine myself you your yours yourself yourselves he him his himself she her hers herself it its itself
        we us our ours ourselves they them their theirs themselves one ones oneself someone anybody anyone anything
        somebody something everybody everyone everything nobody nothing nowhere none other others another else same such
        and or but nor so yet if unless because although though while whereas whether than as since until till once
        of to in on at by for from with without within into onto out up down over under above below between among
        against about across after before behind beside besides beyond during except inside outside near off per
        through throughout toward towards upon via versus unlike
        not no never neither nor cannot hardly scarcely barely rarely seldom nearly almost only just even still
        already again too also ever always often sometimes usually soon ago away back now then
        can could may might must shall should will would ought need dare used supposed do does did done doing
        was were been being got gotten born let lets had
        all any both each every either few fewer fewest half less lesser least little many more most much several some
        enough plenty lot lots very quite rather
        better best worse worst further farther later latter last first second third
        two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty sixty seventy eighty ninety
        hundred hundreds thousand thousands million millions billion billions dozen dozens
    """),
    "de": _words("""
        der die das den dem des ein eine einen einem einer eines kein keine keinen keinem keiner keines
        dieser diese dieses diesen diesem jener jene jenes jenen jenem jeder jede jedes jeden jedem welcher welche
        welches welchen welchem wer wen wem wessen was wo wann warum wie woher wohin
        ich mich mir mein meine meinen meinem meiner meines du dich dir dein deine deinen deinem deiner deines
        er ihn ihm sein seine seinen seinem seiner seines sie ihr ihre ihren ihrem ihrer ihres ihnen es wir uns unser
        unsere unseren unserem unserer unseres euch euer eure euren eurem eurer eures sich man jemand jemanden jemandem
        niemand niemanden niemandem etwas alles selbst selber einander
        und oder aber sondern denn doch weder noch wenn falls weil obwohl während ob als dass damit sobald seit bis
        an am auf aus außer bei beim durch für gegen hinter in im ins mit nach neben ohne über um unter von vom vor
        wegen zu zum zur zwischen statt trotz
        nicht nichts nie niemals nirgends kaum selten fast nur bloß auch sogar schon wieder sehr zu zwar etwa immer oft
        manchmal bald dann da hier dort jetzt heute gestern morgen
        alle allen allem aller viel viele vielen vielem vieler wenig wenige wenigen weniger wenigsten mehr mehrere
        mehreren meist meiste meisten einige einigen einiger manche manchen mancher beide beiden beider beides genug ganz
        ganze ganzen halb halbe halben andere anderen anderer anderes anderem anders solche solchen solcher
        besser beste besten bester bestes lieber liebsten gern gerne erste ersten erster erstes erstem zweite zweiten
        zweiter zweites zweitem dritte dritten dritter drittes letzte letzten letzter letztes nächste nächsten
        zwei drei vier fünf sechs sieben acht neun zehn elf zwölf hundert tausend
        bin bist ist sind seid war warst waren wart wäre wären gewesen habe hast hat haben habt hatte hatten hätte hätten
        gehabt werde wirst wird werden werdet wurde wurden würde würden geworden worden
        kann kannst können könnt konnte konnten könnte könnten muss musst müssen müsst musste mussten müsste müssten
        darf darfst dürfen durfte durften dürfte dürften soll sollst sollen sollt sollte sollten will willst wollen wollt
        wollte wollten mag magst mögen mochte mochten möchte möchten lasse lässt lassen ließ ließen
    """),
    "fr": _words("""
        le la les l un une des du de d au aux ce cet cette ces ça cela ceci celui celle ceux celles
        je j me m moi tu te t toi il elle on nous vous ils elles lui leur leurs se s soi y en
        mon ma mes ton ta tes son sa ses notre nos votre vos mien tien sien
        qui que qu quoi dont où quand comment pourquoi quel quelle quels quelles lequel laquelle
        et ou mais donc or ni car si comme lorsque puisque quoique parce afin tandis
        à dans par pour sur sous sans avec entre vers chez contre depuis pendant avant après devant derrière jusque dès
        hors malgré parmi selon
        ne n non pas point jamais rien personne aucun aucune nul nulle guère plus moins peu trop très assez aussi autant
        presque seulement même mêmes encore déjà toujours souvent parfois rarement bientôt hier demain ici là
        tout toute tous toutes chaque plusieurs quelque quelques certain certaine certains certaines beaucoup tant tel
        telle tels telles autre autres
        mieux meilleur meilleure meilleurs meilleures pire pires moindre premier première premiers premières dernier
        dernière derniers dernières second seconde
        deux trois quatre cinq six sept huit neuf dix onze douze vingt trente quarante cinquante soixante cent cents mille
        suis es est sommes êtes sont étais était étions étiez étaient fus fut furent été être serai sera seront serait
        seraient soit soient ai as a avons avez ont avais avait avions aviez avaient eu eut eurent avoir aura auront
        aurait auraient ait aient
        peux peut pouvons pouvez peuvent pouvait pouvaient pourrait dois doit devons devez doivent devait devaient
        devrait veux veut voulons voulez veulent voulait voulaient voudrait faut fallait faudrait va vont allait
    """),
    "es": _words("""
        el la los las lo un una unos unas del al este esta estos estas ese esa esos esas aquel aquella aquellos aquellas
        esto eso aquello yo me mí mi mis mío tú tu tus te ti tuyo él ella ellos ellas ello su sus suyo suya se sí le les
        nos nosotros nosotras nuestro nuestra nuestros nuestras vosotros vosotras os vuestro vuestra usted ustedes
        que qué quien quién quienes cual cuál cuales cuyo cuya donde dónde cuando cuándo como cómo cuanto cuánto porque
        y e o u pero sino ni si aunque mientras pues
        a ante bajo con contigo conmigo contra de desde durante en entre hacia hasta para por según sin sobre tras
        no nunca jamás nada nadie ningún ninguno ninguna tampoco apenas casi solo sólo también aún todavía ya muy tan
        tanto tanta tantos tantas siempre a menudo rara aquí allí ahora antes después hoy ayer mañana
        todo toda todos todas cada algún alguno alguna algunos algunas algo alguien varios varias mucho mucha muchos
        muchas poco poca pocos pocas más menos bastante demasiado otro otra otros otras mismo misma mismos mismas ambos
        ambas mejor mejores peor peores mayor mayores menor menores
        primer primero primera primeros primeras segundo segunda último última últimos últimas
        dos tres cuatro cinco seis siete ocho nueve diez once doce veinte treinta cien ciento cientos mil miles
        soy eres es somos sois son era eras éramos eran fui fuiste fue fueron ser sido será sería estoy estás está
        estamos están estaba estaban estuvo estar estado he has ha hemos han había habían hubo haber hay
        puedo puedes puede podemos pueden podía podría debo debes debe debemos deben debía debería suele
    """),
    "it": _words("""
        il lo la i gli le l un uno una del dello della dei degli delle al allo alla ai agli alle dal dallo dalla dai
        dagli dalle nel nello nella nei negli nelle sul sullo sulla sui sugli sulle col coi
        questo questa questi queste quello quella quelli quelle quel quei quegli ciò
        io me mi tu te ti lui lei egli ella esso essa noi ci voi vi loro essi esse si sé ne
        mio mia miei mie tuo tua tuoi tue suo sua suoi sue nostro nostra nostri nostre vostro vostra vostri vostre
        che chi cui quale quali quando dove come perché quanto quanta quanti quante
        e ed o od ma però né se anche pure mentre sebbene poiché
        a ad di da in con su per tra fra senza sotto sopra verso contro dopo prima durante entro fino presso
        non no mai niente nulla nessuno nessuna nessun neanche nemmeno neppure appena quasi solo soltanto ancora già
        sempre spesso raramente talvolta qui qua lì là ora adesso oggi ieri domani molto molta molti molte poco poca pochi
        poche più meno troppo troppa troppi troppe tanto tanta tanti tante tutto tutta tutti tutte ogni alcuno alcuna
        alcuni alcune qualche qualcuno qualcosa parecchio parecchi altro altra altri altre stesso stessa stessi stesse
        entrambi entrambe meglio migliore migliori peggio peggiore peggiori maggiore maggiori minore minori
        primo prima primi prime secondo seconda ultimo ultima ultimi ultime
        due tre quattro cinque sei sette otto nove dieci undici dodici venti trenta cento mille mila
        sono sei è siamo siete era eri erano fu furono stato stata stati state essere sarà sarebbe ho hai ha abbiamo
        avete hanno aveva avevano ebbe avere avuto sta stanno stava
        posso puoi può possiamo possono poteva potrebbe devo devi deve dobbiamo devono doveva dovrebbe voglio vuoi vuole
        vogliamo vogliono voleva vorrebbe
    """),
    "pt": _words("""
        o a os as um uma uns umas do da dos das no na nos nas ao à aos às pelo pela pelos pelas dum duma num numa
        este esta estes estas esse essa esses essas aquele aquela aqueles aquelas isto isso aquilo deste desta desse
        dessa daquele daquela neste nesta nesse nessa
        eu me mim meu minha meus minhas tu te ti teu tua teus tuas ele ela eles elas lhe lhes se si seu sua seus suas
        você vocês nós nosso nossa nossos nossas vós dele dela deles delas
        que quem qual quais cujo cuja quando onde como porque quanto quanta quantos quantas
        e ou mas nem se embora enquanto pois
        de em com por para sem sob sobre entre até desde contra após ante durante perante segundo
        não nunca jamais nada ninguém nenhum nenhuma nenhuns tampouco apenas quase só somente também ainda já muito muita
        muitos muitas pouco pouca poucos poucas mais menos bastante demais tão tanto tanta tantos tantas sempre
        raramente aqui ali lá agora antes depois hoje ontem amanhã
        todo toda todos todas tudo cada algum alguma alguns algumas algo alguém vários várias outro outra outros outras
        mesmo mesma mesmos mesmas ambos ambas melhor melhores pior piores maior maiores menor menores
        primeiro primeira primeiros primeiras segunda último última últimos últimas
        dois duas três quatro cinco seis sete oito nove dez onze doze vinte trinta cem cento mil
        sou és é somos são era eras éramos eram fui foi foram ser sido será seria estou está estamos estão estava
        estavam esteve estar estado tenho tens tem temos têm tinha tinham teve ter tido hei há havia houve haver
        posso podes pode podemos podem podia poderia devo deve devemos devem devia deveria vou vai vão
    """),
}

OWN_SENSE: dict[str, frozenset[str]] = {
    "en": _words("""
        glasses shorts arms goods customs briefs pants jeans clothes cloths looks manners spirits ashes brains savings
        earnings belongings surroundings means news odds thanks regards remains stairs stakes terms times works ways finals
        damages premises quarters proceeds contents authorities airs waters irons grounds forces funds
        headquarters sports spectacles binoculars scissors bored broke drunk left lay laid fell felt ground wound bound
        bore leaves lives saw sawed founded grounded wounded bounded
        united married related mixed advanced based limited gifted talented
    """),
    "de": _words("""
        verschiedene verschiedenen verschiedener bestimmte bestimmten bestimmter gewisse gewissen eigene eigenen eigener
    """),
    "fr": _words("""
        lunettes vacances ciseaux toilettes devoirs échecs affaires ménages parents droits frais
    """),
    "es": _words("""
        gafas vacaciones celos esposas deberes bienes padres hijos hermanos abuelos tíos reyes novios señores alrededores
    """),
    "it": _words("""
        occhiali ferie nozze scacchi figli fratelli nonni zii genitori
    """),
    "pt": _words("""
        óculos férias costas bens pais filhos irmãos avós tios namorados
    """),
}
"""Spanish, Italian and Portuguese masculine plurals of people are here too: padres are both parents, padre is one."""

IRREGULAR: frozenset[str] = _words("""
    is are am has have
    ate became began bought brought built came caught chose dealt drank drew drove dreamt flew forgot forgave fought found
    gave grew heard held hid kept knew learnt led lent lost made meant met paid ran rang rode rose said sang sank sent
    shook slept smelt sold sought spent spoke stole stood stuck struck sung swam swore taught told took threw
    understood went withdrew woke won wore wrote
    children men women feet teeth mice geese
""")
